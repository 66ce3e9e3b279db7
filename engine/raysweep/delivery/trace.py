"""The trace of a sweep: that of the first process that ran it, for the processes that run it later, too."""

from __future__ import annotations

from raysweep.errors import StorageError
from raysweep.hooks.spec import CallbackSpec
from raysweep.hooks.tracing import current_traceparent
from raysweep.runs.folder import SweepFolder

MAX_CHARS = 64


def keep_traceparent(folder: SweepFolder, callbacks: tuple[CallbackSpec, ...]) -> str:
    """The traceparent of the sweep, noted once beside its journal; empty: it has a trace of its own.

    Only where a callback makes traces. What cannot be read counts as none.
    """
    if not any(getattr(each.options, "is_traced", False) for each in callbacks):
        return ""
    key = f"{folder.sweep_id}/hooks/traceparent"
    try:
        folder.store.put_if_absent(key, current_traceparent().encode())
        found = folder.store.get(key) or b""
    except StorageError:
        return current_traceparent()
    return found[:MAX_CHARS].decode("ascii", "replace")
