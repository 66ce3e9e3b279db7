"""The verdicts of gates: each written once, beside the sweep that it judges.

<sweep_id>/gates/<gate>/verdict.json     the test's verdict
<sweep_id>/gates/<gate>/decision.json    where approval is required: a copy of the decision, which the
                                         champion's file has
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeVar

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import SpecError, StorageError
from raysweep.outcome import Decision, GateOutcome, Record
from raysweep.outcome.places import gate_with
from raysweep.runs import catalog
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.store import Store

FOLDER: Final = "gates"
VERDICT: Final = "verdict.json"
DECISION: Final = "decision.json"
_Kept = TypeVar("_Kept", bound=Record)


def verdict_key(sweep_id: str, gate: str) -> str:
    """The key of a gate's verdict in the store."""
    return f"{sweep_id}/{FOLDER}/{gate}/{VERDICT}"


def read_verdict(store: Store, sweep_id: str, gate: str) -> GateOutcome | None:
    """The verdict of a sweep's gate, with the approval, if that is required; None before that.

    Raises: StorageError.
    """
    verdict = stored_verdict(store, sweep_id, gate)
    if verdict is None or verdict.approval is None:
        return verdict
    return verdict.told(stored_decision(store, sweep_id, gate))


def stored_decision(store: Store, sweep_id: str, gate: str) -> Decision | None:
    """The copy of the decision, as it was written. Raises: StorageError."""
    return _read(store, f"{sweep_id}/{FOLDER}/{gate}/{DECISION}", Decision)


def stored_verdict(store: Store, sweep_id: str, gate: str) -> GateOutcome | None:
    """The test's verdict alone, as it was written. Raises: StorageError."""
    found = _read(store, verdict_key(sweep_id, gate), GateOutcome)
    return None if found is None else gate_with(found, lambda name: to_uri(store.url, name))


def keep_verdict(store: Store, sweep_id: str, gate: str, verdict: GateOutcome) -> GateOutcome:
    """Write a verdict down, once; returns the one that is there."""
    relative = gate_with(verdict, lambda uri: to_reference(store.url, uri))
    if store.put_if_absent(verdict_key(sweep_id, gate), relative.to_json().encode(), durable=True):
        with suppress(StorageError):  # lists read the verdict itself then
            catalog.keep_verdict(store, sweep_id, gate, relative)
    return read_verdict(store, sweep_id, gate) or verdict


def keep_decision(store: Store, sweep_id: str, gate: str, decision: Decision) -> None:
    """Write the copy of a decision down, beside the verdict."""
    key = f"{sweep_id}/{FOLDER}/{gate}/{DECISION}"
    store.put_if_absent(key, decision.to_json().encode(), durable=True)


def _read(store: Store, key: str, model: type[_Kept]) -> _Kept | None:
    found = store.get(key)
    if found is None:
        return None
    try:
        return model.from_json(found)
    except SpecError as error:
        raise StorageError(f"{store.url}/{key}", f"is damaged ({error})", RESTORE_FIX) from error


def newest_verdict(store: Store, sweep_id: str) -> GateOutcome | None:
    """The verdict of the last of the sweep's gates. Raises: StorageError."""
    names = store.list_folders(f"{sweep_id}/{FOLDER}")
    verdicts = (read_verdict(store, sweep_id, name) for name in names)
    found = [verdict for verdict in verdicts if verdict is not None]
    return max(found, key=lambda verdict: verdict.at, default=None)
