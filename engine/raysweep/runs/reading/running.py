"""A sweep without an outcome, read again and again: its heartbeat, and its state from the journal.

`reader.py` imports this when it meets such a sweep: it needs the core, and most looks are at ended ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from raysweep.core.state.sweep import SweepState
from raysweep.core.views.result import outcome_so_far, trial_outcome
from raysweep.errors import RaysweepError
from raysweep.estimates import Past, Seen
from raysweep.outcome import Standing, SweepOutcome, SweepProgress, TrialOutcome
from raysweep.outcome.estimate import NOTHING
from raysweep.outcome.progress import HolderState
from raysweep.outcome.standing import INTERRUPTED
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import STALE_AFTER_S, HolderWatch
from raysweep.runs.ownership.replay import catch_up, read_state
from raysweep.runs.reading.checkpoints import StoredCheckpoint, list_kept
from raysweep.runs.reading.estimating import CPU_S, Estimating
from raysweep.runs.reading.glances import first_seen_at
from raysweep.runs.reading.past_nights import past_nights
from raysweep.runs.reading.state_status import status_of_state
from raysweep.runs.reading.status import status_of_heartbeat
from raysweep.schedulers import load_scheduler
from raysweep.specs import SweepSpec
from raysweep.storage.journal.journal import Journal
from raysweep.version import __version__


class RunningSweep:
    """One such sweep. Not thread-safe. `cpu_s`, `is_strict`: see `SweepReader`."""

    def __init__(self, folder: SweepFolder, *, cpu_s: float | None, is_strict: bool) -> None:
        self._folder = folder
        self._is_strict = is_strict
        self._state: tuple[Journal, SweepState] | None = None
        self._watch = HolderWatch()
        self._seen = Seen()
        self._estimating = Estimating(self._past, cpu_s=CPU_S if cpu_s is None else cpu_s)
        self._name = ""

    def forget(self) -> None:
        """It has an outcome; the state is not needed."""
        self._state = None

    def trials(self, record: SweepRecord) -> tuple[TrialOutcome, ...]:
        """Every trial, in order."""
        _, state = self._catch_up(record)
        return tuple(trial_outcome(state, trial, self._folder.uri) for trial in state.trials.values())

    def outcome_so_far(self, record: SweepRecord, status: Standing) -> SweepOutcome:
        """All that its journal holds."""
        _, state = self._catch_up(record)
        return outcome_so_far(
            state,
            sweep_id=self._folder.sweep_id,
            key=record.key,
            uri=self._folder.uri,
            version=__version__,
            status="running" if status.is_running else "interrupted",
            until=status.seen_at or status.read_at,
        )

    def checkpoints(self, record: SweepRecord) -> tuple[StoredCheckpoint, ...]:
        """Those that it keeps, by trial and number."""
        _, state = self._catch_up(record)
        return list_kept(self._folder, state)

    def read(self, record: SweepRecord) -> Standing:
        """The present standing of the sweep."""
        uri, key = self._folder.uri, record.key
        # The heartbeat first: what it knows is in the journal by then.
        heartbeat = self._folder.read_progress()
        held = self._watch.judge(heartbeat, self._folder.read_progress if self._is_strict else None)
        try:
            journal, state = self._catch_up(record)
        except RaysweepError as error:
            if self._is_strict:
                raise
            return unread_status(record, heartbeat, uri, f"the journal cannot be read: {error}", held)
        notes, now = tuple(map(str, journal.repairs)), time.time()
        if is_starting(self._folder, state, heartbeat, now):
            return status_of_state(state, None, uri=uri, key=key, now=now, held="alive", notes=notes)
        expected = NOTHING
        if held == "alive":
            expected = self._estimating.of(state, heartbeat, self._seen.curves, now)
        return status_of_state(
            state, heartbeat, uri=uri, key=key, now=now, held=held, notes=notes, expected=expected
        )

    def _past(self) -> Sequence[Past]:
        return past_nights(self._folder.store, self._name, but=self._folder.sweep_id)

    def _catch_up(self, record: SweepRecord) -> tuple[Journal, SweepState]:
        """The journal and the state, read on from where they were."""
        kept, self._state = self._state, None
        if kept is None:
            if self._is_strict:
                load_scheduler(SweepSpec.from_any(dict(record.spec)))
            self._seen = Seen()
            journal, state, _ = read_state(self._folder, record, observe=self._seen.take)
        else:
            journal, state = kept
            catch_up(journal, state, observe=self._seen.take)
        self._name = state.spec.name
        self._state = journal, state
        return self._state


def is_starting(folder: SweepFolder, state: SweepState, heartbeat: SweepProgress | None, now: float) -> bool:
    """True if a controller has claimed the sweep, or is about to, and has had no time for a heartbeat."""
    if state.controller.generation <= (heartbeat.generation if heartbeat is not None else -1):
        return False
    began_at = state.controller.started_at if state.controller.generation else first_seen_at(folder)
    return abs(now - began_at) <= STALE_AFTER_S


def unread_status(
    record: SweepRecord, heartbeat: SweepProgress | None, uri: str, problem: str, held: HolderState
) -> Standing:
    """The standing where the journal cannot be read."""
    now = time.time()
    if heartbeat is not None:
        return status_of_heartbeat(heartbeat, uri=uri, key=record.key, now=now, held=held, problem=problem)
    return Standing(
        run_id=uri.rpartition("/")[2],
        name=str(record.spec.get("name", "")),
        uri=uri,
        key=record.key,
        status=INTERRUPTED,
        metric=str(record.spec.get("metric", "")),
        mode="min" if record.spec.get("mode") == "min" else "max",
        problem=problem,
        notes=(problem,),
        read_at=now,
    )
