"""The verdicts of gates: each written once, beside the sweep that it judges.

<sweep_id>/gates/<gate>/verdict.json
"""

from __future__ import annotations

from typing import Final

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import SpecError, StorageError
from raysweep.outcome import GateOutcome
from raysweep.outcome.places import gate_with
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.store import Store

FOLDER: Final = "gates"
VERDICT: Final = "verdict.json"


def verdict_key(sweep_id: str, gate: str) -> str:
    """Where a gate's verdict lies in the store."""
    return f"{sweep_id}/{FOLDER}/{gate}/{VERDICT}"


def read_verdict(store: Store, sweep_id: str, gate: str) -> GateOutcome | None:
    """What a gate of a sweep has decided; None before that. Raises: StorageError."""
    key = verdict_key(sweep_id, gate)
    found = store.get(key)
    if found is None:
        return None
    try:
        return gate_with(GateOutcome.from_json(found), lambda name: to_uri(store.url, name))
    except SpecError as error:
        raise StorageError(f"{store.url}/{key}", f"is damaged ({error})", RESTORE_FIX) from error


def keep_verdict(store: Store, sweep_id: str, gate: str, verdict: GateOutcome) -> GateOutcome:
    """Write a verdict down, once; returns the one that is there."""
    relative = gate_with(verdict, lambda uri: to_reference(store.url, uri))
    store.put_if_absent(verdict_key(sweep_id, gate), relative.to_json().encode(), durable=True)
    return read_verdict(store, sweep_id, gate) or verdict


def newest_verdict(store: Store, sweep_id: str) -> GateOutcome | None:
    """What the last of the sweep's gates decided. Raises: StorageError."""
    names = store.list_folders(f"{sweep_id}/{FOLDER}")
    verdicts = (read_verdict(store, sweep_id, name) for name in names)
    found = [verdict for verdict in verdicts if verdict is not None]
    return max(found, key=lambda verdict: verdict.at, default=None)
