"""Reads how a run stands, once or again and again, from its storage alone.

    status = SweepReader("s3://bucket/sweeps", "flights-1f3a9c2e").read()
    status.status, status.best.config, status.curve[-1].score, [each.trial_id for each in status.top]

A reader asks no cluster, writes nothing and needs no Ray, and works before the first trial, while the sweep
runs, and after its end, however that came. The calls block: in an event loop, make them in a thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from itertools import islice
from typing import Final

from raysweep.core.state.sweep import SweepState
from raysweep.core.views.result import outcome_so_far, trial_outcome
from raysweep.errors import RaysweepError, SweepNotFoundError
from raysweep.estimates import Past, Seen
from raysweep.outcome import SweepOutcome, SweepProgress, TrialOutcome
from raysweep.outcome.estimate import NOTHING
from raysweep.runs.across_runs.verdicts import newest_verdict
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import STALE_AFTER_S, HolderState, HolderWatch
from raysweep.runs.ownership.replay import catch_up, read_state
from raysweep.runs.reading.checkpoints import StoredCheckpoint, list_kept
from raysweep.runs.reading.estimating import CPU_S, Estimating
from raysweep.runs.reading.glances import first_seen_at
from raysweep.runs.reading.past_nights import past_nights
from raysweep.runs.reading.status import (
    INTERRUPTED,
    RunStatus,
    status_of_heartbeat,
    status_of_outcome,
    status_of_state,
)
from raysweep.schedulers import load_scheduler
from raysweep.specs import SweepSpec
from raysweep.storage.journal.journal import Journal
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import ObjectInfo
from raysweep.version import __version__

FRESH_S: Final = 1.0


class SweepReader:
    """Reads one sweep's status again and again; any thread may.

    While the sweep runs it keeps the sweep's state and reads on where the journal stopped; after the end it
    keeps the status until the outcome changes. Statuses are shared for `fresh_s` seconds.

    Args:
        storage_path: The storage path.
        sweep_id: The sweep.
        fresh_s: How long a status is as good as new, in seconds.
        cpu_s: The CPU time for an estimate of the sweep's end, in seconds; at most once a minute.
        is_strict: For who looks once, and wants to know: a journal that cannot be read raises, a holder
            whose clock is wrong is watched until it is known whether it lives, and a scheduler of the user's
            own is imported.
    """

    def __init__(
        self,
        storage_path: str,
        sweep_id: str,
        *,
        fresh_s: float = FRESH_S,
        is_strict: bool = False,
        cpu_s: float = CPU_S,
    ) -> None:
        self._folder = SweepFolder(open_store(storage_path), sweep_id)
        self._fresh_s = fresh_s
        self._is_strict = is_strict
        self._lock = threading.Lock()
        self._status: RunStatus | None = None
        self._read_at = -math.inf
        self._state: tuple[Journal, SweepState] | None = None
        self._watch = HolderWatch()
        self._outcome_seen: ObjectInfo | None = None
        self._seen = Seen()
        self._estimating = Estimating(self._past, cpu_s=cpu_s)
        self._name = ""

    def read(self, *, is_fresh: bool = False) -> RunStatus | None:
        """How the sweep stands now; None where nothing of it is stored yet.

        `is_fresh`: whatever was read before, however short ago: for the last word on a sweep.

        A journal that cannot be read leaves the curve and the leaderboard out, and `problem` says why.

        Raises:
            StorageError, SweepDamagedError: What cannot be read.
            JournalDamagedError: The same, of the journal; only where `is_strict`.
        """
        with self._lock:
            now = time.monotonic()
            if is_fresh or self._status is None or now - self._read_at >= self._fresh_s:
                self._status = self._read()
                self._read_at = now
            return self._status

    def trials(self) -> Sequence[TrialOutcome]:
        """Every trial of the sweep, in order. Raises: as `read` where `is_strict`."""
        outcome, record = self._folder.read_outcome(), self._folder.read_spec()
        if outcome is not None or record is None:
            return outcome.trials if outcome is not None else ()
        with self._lock:
            _, state = self._catch_up(record)
            return tuple(trial_outcome(state, trial, self._folder.uri) for trial in state.trials.values())

    def best(self, count: int) -> tuple[TrialOutcome, ...]:
        """The best trials as `SweepOutcome.top` ranks them, then the others by number, `count` in all.

        Few of them are in the status already. Raises: as `outcome_so_far`.
        """
        status = self.read()
        if status is not None and count <= len(status.top):
            return status.top[:count]
        outcome = self.outcome_so_far()
        ranked = outcome.top(count) if outcome.metric else ()
        names, missing = {trial.number for trial in ranked}, count - len(ranked)
        others = (trial for trial in outcome.trials if trial.number not in names)
        return (*ranked, *islice(others, missing))

    def outcome_so_far(self) -> SweepOutcome:
        """The outcome; of a sweep that has not ended, all that its journal holds.

        Raises:
            SweepNotFoundError: There is no such sweep.
            StorageError, SweepDamagedError, JournalDamagedError: It cannot be read.
        """
        status, record = self.read(is_fresh=True), self._folder.read_spec()
        outcome = self._folder.read_outcome()
        if outcome is not None:
            return outcome
        if status is None or record is None:
            raise SweepNotFoundError(self._folder.sweep_id, self._folder.store.url)
        with self._lock:
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

    def checkpoints(self) -> tuple[StoredCheckpoint, ...]:
        """Those that the sweep keeps, by trial and number. Raises: as `read` where `is_strict`."""
        record = self._folder.read_spec()
        if record is None:
            return ()
        with self._lock:
            _, state = self._catch_up(record)
            return list_kept(self._folder, state)

    def _read(self) -> RunStatus | None:
        seen = self._folder.store.head(f"{self._folder.sweep_id}/outcome.json")
        if seen is not None:
            if seen == self._outcome_seen and self._status is not None:
                return with_verdict(self._status, self._folder)
            status = self._folder.read_status(seen.size_bytes)
            outcome = self._folder.read_outcome() if status is None else None
            if outcome is not None:
                status = status_of_outcome(outcome, uri=self._folder.uri, now=time.time())
            if status is not None:
                self._outcome_seen, self._state = seen, None
                return with_verdict(status, self._folder)
        self._outcome_seen = None
        record = self._folder.read_spec()
        return self._read_running(record) if record is not None else None

    def _read_running(self, record: SweepRecord) -> RunStatus:
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
        notes, now = tuple(journal.repairs), time.time()
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


def with_verdict(status: RunStatus, folder: SweepFolder) -> RunStatus:
    """The status with the verdict of the sweep's newest gate, which comes after the sweep's end."""
    try:
        verdict = newest_verdict(folder.store, folder.sweep_id)
    except RaysweepError as error:
        note = f"the gate's verdict cannot be read: {error}"
        return status if note in status.notes else status.model_copy(update={"notes": (*status.notes, note)})
    return status if verdict is None else status.model_copy(update={"gate": verdict})


def is_starting(folder: SweepFolder, state: SweepState, heartbeat: SweepProgress | None, now: float) -> bool:
    """Whether a controller has claimed the sweep, or is about to, and has had no time for a heartbeat."""
    if state.controller.generation <= (heartbeat.generation if heartbeat is not None else -1):
        return False
    began_at = state.controller.started_at if state.controller.generation else first_seen_at(folder)
    return abs(now - began_at) <= STALE_AFTER_S


def unread_status(
    record: SweepRecord, heartbeat: SweepProgress | None, uri: str, problem: str, held: HolderState
) -> RunStatus:
    """What is known where the journal cannot be read."""
    now = time.time()
    if heartbeat is not None:
        return status_of_heartbeat(heartbeat, uri=uri, key=record.key, now=now, held=held, problem=problem)
    return RunStatus(
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
