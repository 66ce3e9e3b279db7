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
from typing import TYPE_CHECKING, Final

from raysweep.errors import RaysweepError, SweepNotFoundError
from raysweep.outcome import Standing, SweepOutcome, TrialOutcome
from raysweep.runs.across_runs.verdicts import newest_verdict
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import ObjectInfo

if TYPE_CHECKING:
    from raysweep.runs.reading.checkpoints import StoredCheckpoint
    from raysweep.runs.reading.running import RunningSweep

FRESH_S: Final = 1.0


class SweepReader:
    """Reads one sweep's status again and again; any thread may.

    While the sweep runs it keeps the sweep's state and reads on where the journal stopped; after the end it
    keeps the status until the outcome changes. Statuses are shared for `fresh_s` seconds.

    Args:
        storage_path: The storage path.
        sweep_id: The sweep.
        fresh_s: How long a status is as good as new, in seconds.
        cpu_s: The CPU time for an estimate of the sweep's end, in seconds; at most once a minute. Default:
            0.5.
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
        cpu_s: float | None = None,
    ) -> None:
        self._folder = SweepFolder(open_store(storage_path), sweep_id)
        self._fresh_s = fresh_s
        self._is_strict = is_strict
        self._lock = threading.Lock()
        self._status: Standing | None = None
        self._read_at = -math.inf
        self._outcome_seen: ObjectInfo | None = None
        self._cpu_s = cpu_s
        self._known_running: RunningSweep | None = None

    def read(self, *, is_fresh: bool = False) -> Standing | None:
        """The present standing of the sweep; None where nothing of it is stored yet.

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
            return self._running().trials(record)

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
            return self._running().outcome_so_far(record, status)

    def checkpoints(self) -> tuple[StoredCheckpoint, ...]:
        """Those that the sweep keeps, by trial and number. Raises: as `read` where `is_strict`."""
        record = self._folder.read_spec()
        if record is None:
            return ()
        with self._lock:
            return self._running().checkpoints(record)

    def _read(self) -> Standing | None:
        seen = self._folder.store.head(f"{self._folder.sweep_id}/outcome.json")
        if seen is not None:
            if seen == self._outcome_seen and self._status is not None:
                return with_verdict(self._status, self._folder)
            status = self._folder.read_standing()
            if status is not None:
                self._outcome_seen = seen
                if self._known_running is not None:
                    self._known_running.forget()
                return with_verdict(status, self._folder)
        self._outcome_seen = None
        record = self._folder.read_spec()
        return self._running().read(record) if record is not None else None

    def _running(self) -> RunningSweep:
        if self._known_running is None:
            from raysweep.runs.reading.running import RunningSweep

            self._known_running = RunningSweep(self._folder, cpu_s=self._cpu_s, is_strict=self._is_strict)
        return self._known_running


def with_verdict(status: Standing, folder: SweepFolder) -> Standing:
    """The status with the verdict of the sweep's newest gate, which comes after the sweep's end."""
    try:
        verdict = newest_verdict(folder.store, folder.sweep_id)
    except RaysweepError as error:
        note = f"the gate's verdict cannot be read: {error}"
        return status if note in status.notes else status.model_copy(update={"notes": (*status.notes, note)})
    return status if verdict is None else status.model_copy(update={"gate": verdict})
