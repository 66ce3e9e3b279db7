"""All sweeps of a storage path, looked at again and again: little is read each time. Needs no Ray.

A look lists the path once. Of a sweep that has not ended it reads the heartbeat; those that have ended are
listed once, and then every half minute, as one may have been continued.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from raysweep.errors import StorageError
from raysweep.outcome import Standing
from raysweep.runs.catalog import stem_of
from raysweep.runs.reading.listing import list_runs
from raysweep.storage.objects.store import Store

RECHECK_S: Final = 30.0
PACE_S: Final = 60.0
"""The pace is that of the last so many seconds; of less than half of them, that since the start."""


@dataclass(slots=True)
class _Kept:
    row: Standing
    read_at: float
    ended: deque[tuple[float, int]] = field(default_factory=deque)


class StorageWatch:
    """Looks at all sweeps of one storage path. One thread at a time may."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}
        self.problem = ""
        """The reason why the last look could not list the path; it then gave the result of the one before."""

    def look(self) -> list[Standing]:
        """The sweeps as they are now: those that run first, then the newest.

        A sweep that is gone is left out; one that cannot be read has the status `damaged`.
        """
        now = time.time()
        try:
            names = [name for name in self._store.list_folders() if stem_of(name)]
            rows = list_runs(self._store, [name for name in names if self._is_due(name, now)])
            self.problem = ""
        except StorageError as error:
            self.problem = str(error)
            return self._sorted()
        kept = {name: self._kept[name] for name in names if not self._is_due(name, now)}
        self._kept = kept | {row.run_id: self._keep(row, now) for row in rows}
        return self._sorted()

    def _sorted(self) -> list[Standing]:
        rows = [kept.row for kept in self._kept.values() if kept.row.kind == "sweep"]
        return sorted(rows, key=lambda row: (not row.is_running, -(row.ended_at or row.started_at or 0.0)))

    def _is_due(self, run_id: str, now: float) -> bool:
        kept = self._kept.get(run_id)
        return kept is None or kept.row.is_running or now - kept.read_at >= RECHECK_S

    def _keep(self, row: Standing, now: float) -> _Kept:
        before = self._kept.get(row.run_id)
        name = row.name or (before.row.name if before is not None else stem_of(row.run_id))
        row = row.model_copy(update={"name": name})
        return _with_pace(_Kept(row, now, before.ended if before is not None else deque()), now)


def event_of(row: Standing) -> str:
    """The last event, in one line: the newest note, why it ended, what is wrong."""
    if row.has_ended or row.problem:
        return row.cause
    if not row.is_running and row.holder is not None:
        return f"no process runs it; last heard of {row.holder}"
    return row.notes[-1] if row.notes else f"best is trial {row.trial_id}" if row.trial_id else ""


def _with_pace(kept: _Kept, now: float) -> _Kept:
    row, ended = kept.row, kept.ended
    if not row.is_running:
        ended.clear()
        return kept
    ended.append((now, row.counts.ended))
    while ended[-1][0] - ended[0][0] > PACE_S:
        ended.popleft()
    span_s, trials = ended[-1][0] - ended[0][0], ended[-1][1] - ended[0][1]
    if span_s < PACE_S / 2 and row.started_at is not None:
        span_s, trials = now - row.started_at, row.counts.ended
    if span_s > 0:
        kept.row = row.model_copy(update={"per_minute": 60.0 * trials / span_s})
    return kept
