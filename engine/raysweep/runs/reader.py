"""Reads how a sweep stands, once or again and again, from its storage alone.

    report = read_report("s3://bucket/sweeps", "flights-1f3a9c2e")
    report.status, report.best.config, report.curve[-1].score, [each.trial_id for each in report.top]

A `SweepReader` reads it again while the sweep runs, at the cost of what is new. Both ask no cluster, write
nothing and need no Ray, and work before the first trial, while the sweep runs, and after its end, however
that came. The calls block: in an event loop, make them in a thread.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Final

from raysweep.core.state import SweepState
from raysweep.errors import RaysweepError
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.holder import HolderWatch
from raysweep.runs.replay import catch_up, read_state
from raysweep.runs.report import INTERRUPTED, TOP, SweepReport, report_of_outcome, report_of_running
from raysweep.storage.journal import Journal
from raysweep.storage.store import ObjectInfo, open_store

FRESH_S: Final = 1.0


def read_report(storage_path: str, sweep_id: str, *, top: int = TOP) -> SweepReport | None:
    """How the sweep stands; None where nothing of it is stored yet.

    Raises: StorageError, SweepDamagedError for what cannot be read.
    """
    return SweepReader(storage_path, sweep_id, top=top).read()


class SweepReader:
    """Reads one sweep's report again and again; any thread may.

    While the sweep runs it keeps the sweep's state and reads on where the journal stopped; after the end it
    keeps the report until the outcome changes. Reports are shared for `fresh_s` seconds.
    """

    def __init__(self, storage_path: str, sweep_id: str, *, top: int = TOP, fresh_s: float = FRESH_S) -> None:
        self._folder = SweepFolder(open_store(storage_path), sweep_id)
        self._top = top
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._report: SweepReport | None = None
        self._read_at = -math.inf
        self._state: tuple[Journal, SweepState] | None = None
        self._watch = HolderWatch()
        self._outcome_seen: ObjectInfo | None = None

    @property
    def uri(self) -> str:
        """Where the sweep lies."""
        return self._folder.uri

    def read(self) -> SweepReport | None:
        """How the sweep stands now; None where nothing of it is stored yet.

        A journal that cannot be read leaves the curve and the leaderboard out, and `notes` says so.

        Raises: StorageError, SweepDamagedError for what cannot be read.
        """
        with self._lock:
            now = time.monotonic()
            if self._report is None or now - self._read_at >= self._fresh_s:
                self._report = self._read()
                self._read_at = now
            return self._report

    def _read(self) -> SweepReport | None:
        seen = self._folder.store.head(f"{self._folder.sweep_id}/outcome.json")
        if seen is not None:
            if seen == self._outcome_seen and self._report is not None:
                return self._report
            outcome = self._folder.read_outcome()
            if outcome is not None:
                self._outcome_seen, self._state = seen, None
                return report_of_outcome(outcome, uri=self.uri, top=self._top, now=time.time())
        self._outcome_seen = None
        return self._read_running()

    def _read_running(self) -> SweepReport | None:
        record = self._folder.read_spec()
        if record is None:
            return None
        # The heartbeat first: what it knows is in the journal by then.
        progress = self._folder.read_progress()
        state, problem = self._read_state(record)
        now = time.time()
        if state is None and progress is None:
            return SweepReport(
                sweep_id=self._folder.sweep_id,
                name=str(record.spec.get("name", "")),
                uri=self.uri,
                key=record.key,
                status=INTERRUPTED,
                is_running=False,
                has_ended=False,
                metric=str(record.spec.get("metric", "")),
                mode="min" if record.spec.get("mode") == "min" else "max",
                notes=(problem,),
                read_at=now,
            )
        return report_of_running(
            state,
            progress,
            uri=self.uri,
            key=record.key,
            top=self._top,
            now=now,
            is_running=self._watch.is_held(progress),
            problem=problem,
        )

    def _read_state(self, record: SweepRecord) -> tuple[SweepState | None, str]:
        """The state, read on from where it was; or what is wrong with the journal."""
        try:
            if self._state is None:
                journal, state, _ = read_state(self._folder, record)
            else:
                journal, state = self._state
                catch_up(journal, state)
        except RaysweepError as error:
            self._state = None
            return None, f"the journal cannot be read: {error}"
        self._state = journal, state
        return state, ""
