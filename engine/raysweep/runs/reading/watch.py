"""All sweeps of a storage path, looked at again and again: little is read each time. Needs no Ray.

A look lists the path once. Of a sweep that has not ended it reads the heartbeat; one that has ended is read
once, from its summary, and then every half minute, as it may have been continued.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from raysweep.documents.json_numbers import Counts
from raysweep.errors import RaysweepError, StorageError
from raysweep.outcome.summary import RunSummary
from raysweep.runs.catalog import stem_of
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.glances import glance
from raysweep.runs.reading.status import RunStatus
from raysweep.runs.reading.summaries import read_summary
from raysweep.storage.objects.parallel import each_of
from raysweep.storage.objects.store import Store

RECHECK_S: Final = 30.0
PACE_S: Final = 60.0
"""The pace is that of the last so many seconds; of less than half of them, that since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSweep:
    """A sweep on one row. Times are UTC seconds."""

    sweep_id: str
    name: str
    status: str
    is_running: bool
    metric: str = ""
    score: float | None = None
    trial_id: str = ""
    """The best trial."""
    counts: Counts = field(default_factory=Counts)
    num_trials: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    ends_at: float | None = None
    """When a limit will end one that runs: its deadline, or what is expected; None: neither is known."""
    per_minute: float | None = None
    """Trials that end in a minute; None of one that does not run."""
    event: str = ""
    """What happened last, in one line: the newest note, why it ended, what is wrong."""


@dataclass(slots=True)
class _Kept:
    row: WatchedSweep
    read_at: float
    ended: deque[tuple[float, int]] = field(default_factory=deque)


class StorageWatch:
    """Looks at all sweeps of one storage path. One thread at a time may."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}
        self.problem = ""
        """Why the last look could not list the path; then it gave what the one before had found."""

    def look(self) -> list[WatchedSweep]:
        """The sweeps as they are now: those that run first, then the newest.

        A sweep that is gone is left out; one that cannot be read has an error in its row.
        """
        now = time.time()
        try:
            names = [name for name in self._store.list_folders() if stem_of(name)]
            self.problem = ""
        except StorageError as error:
            self.problem = str(error)
            return self._sorted()
        found = each_of(self._store, lambda name: self._look_at(name, now), names)
        self._kept = {kept.row.sweep_id: kept for kept in found if kept is not None}
        return self._sorted()

    def _sorted(self) -> list[WatchedSweep]:
        rows = [kept.row for kept in self._kept.values()]
        return sorted(rows, key=lambda row: (not row.is_running, -(row.ended_at or row.started_at or 0.0)))

    def _look_at(self, sweep_id: str, now: float) -> _Kept | None:
        kept = self._kept.get(sweep_id)
        if kept is not None and not kept.row.is_running and now - kept.read_at < RECHECK_S:
            return kept
        try:
            row = self._read(sweep_id, now)
        except RaysweepError as error:
            if kept is None:
                return None
            row = WatchedSweep(
                sweep_id=sweep_id, name=kept.row.name, status="damaged", is_running=False, event=str(error)
            )
        if row is None:
            return None
        return _with_pace(_Kept(row, now, kept.ended if kept is not None else deque()), now)

    def _read(self, sweep_id: str, now: float) -> WatchedSweep | None:
        """A sweep; None: there is none of this id (any more), or it is a training. Raises: RaysweepError."""
        store = self._store
        if store.exists(f"{sweep_id}/outcome.json"):
            run = read_summary(store, sweep_id)
            return None if run is None or run.kind != "sweep" else _of_summary(run)
        if not store.exists(f"{sweep_id}/sweep.json"):
            return None
        return _of_status(glance(SweepFolder(store, sweep_id)), now)


def _of_summary(run: RunSummary) -> WatchedSweep:
    return WatchedSweep(
        sweep_id=run.run_id,
        name=run.name,
        status=run.status,
        is_running=run.is_running,
        metric=run.metric,
        score=run.score,
        trial_id=run.trial_id,
        counts=run.counts,
        num_trials=run.num_trials,
        started_at=run.started_at,
        ended_at=run.ended_at,
        event=run.why,
    )


def _of_status(status: RunStatus, now: float) -> WatchedSweep:
    best, heartbeat = status.best, status.heartbeat
    event = status.notes[-1] if status.notes else ""
    if not event and best is not None:
        event = f"best is trial {best.trial_id}"
    if not status.is_running and heartbeat is not None and not status.has_ended:
        event = f"no process runs it; last heard of {heartbeat.holder}"
    if status.has_ended:
        event = status.why
    deadline = heartbeat.deadline if heartbeat is not None else None
    return WatchedSweep(
        sweep_id=status.run_id,
        name=status.name or stem_of(status.run_id),
        status=status.status,
        is_running=status.is_running,
        metric=status.metric,
        score=best.score if best is not None else None,
        trial_id=best.trial_id if best is not None else "",
        counts=status.counts,
        num_trials=status.num_trials,
        started_at=status.started_at,
        ended_at=status.ended_at,
        ends_at=status.expected_end_at if status.expected_end_at is not None else deadline,
        event=event,
    )


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
        kept.row = replace(row, per_minute=60.0 * trials / span_s)
    return kept
