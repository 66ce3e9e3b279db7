"""How a line of champions changes: one decision after the other, each with its evidence.

The line's file is replaced only by a put that names the version it was made from. Of two changes at once one
comes first, and the other decides again against what that one wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.outcome import Decision
from raysweep.runs.across_runs.champions import ChampionRecord, Line, Night, decode_record, encode_record
from raysweep.runs.across_runs.evidence import (
    Evidence,
    Facts,
    Kind,
    alone,
    check_newest,
    mark_made,
    write_entry,
)
from raysweep.storage.objects.store import Store

_TRIES: Final = 50
_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A line's file as it is to be, and the words of its evidence."""

    record: ChampionRecord
    kind: Kind
    at: float
    by: str
    why: str
    night: Night | None = None
    """What is decided on; None: the champion that there is afterwards."""
    facts: Facts | None = None
    decision: Decision | None = None


def change_line(store: Store, line: Line, make: Callable[[ChampionRecord], Change | None]) -> ChampionRecord:
    """Replace the line's file by what `make` makes of it, with evidence; as it is where that is None."""
    key = line.key
    for tried in range(_TRIES):
        found = store.get_versioned(key)
        record = decode_record(store, key, found[0] if found else None)
        change = make(record)
        if change is None:
            return record
        if _is_overtaken(store, line, found, record):
            continue
        stem = write_entry(store, _entry(line, record, change))
        after = change.record.model_copy(update={"head": stem})
        if change.kind == "gate" and after.history:
            newest = after.history[-1].model_copy(update={"evidence": stem})
            after = after.model_copy(update={"history": (*after.history[:-1], newest)})
        if store.put_if_version(key, encode_record(store, after), found[1] if found else None):
            mark_made(store, line, stem)
            return after
        time.sleep(_PAUSE_S * (tried + 1))
    raise _busy(store, line)


def read_newest(store: Store, line: Line) -> ChampionRecord:
    """The line's file, seen to be the newest one: for what acts on it without a change of it.

    Raises: StorageError: As `check_newest`.
    """
    for _ in range(_TRIES):
        found = store.get_versioned(line.key)
        record = decode_record(store, line.key, found[0] if found else None)
        if not _is_overtaken(store, line, found, record):
            return record
    raise _busy(store, line)


def _is_overtaken(store: Store, line: Line, found: tuple[bytes, str] | None, record: ChampionRecord) -> bool:
    """Whether another change has come since the file was read. Raises: StorageError: As `check_newest`."""
    try:
        check_newest(store, line, record)
    except StorageError:
        if store.get_versioned(line.key) == found:
            raise
        return True
    return False


def _busy(store: Store, line: Line) -> StorageUnavailableError:
    problem = f"changed {_TRIES} times while it was written"
    return StorageUnavailableError(f"{store.url}/{line.key}", problem, "try again")


def _entry(line: Line, record: ChampionRecord, change: Change) -> Evidence:
    before, after = alone(record.champion), alone(change.record.champion)
    night = change.night
    return Evidence(
        number=int(record.head.partition("-")[0] or 0) + 1,
        kind=change.kind,
        previous=record.head,
        at=change.at,
        by=change.by,
        why=change.why,
        name=line.name,
        metric=line.metric,
        mode=line.mode,
        data=line.data,
        sweep_id=night.sweep_id if night else "",
        key=night.key if night else "",
        gate=night.gate if night else "",
        promoted=before != after,
        before=before,
        after=after,
        facts=change.facts,
        decision=change.decision,
    )
