"""The numbers of a sweep as metrics of Ray: its agent on each node has them for Prometheus."""

from __future__ import annotations

import logging
import time

from raysweep.core import SweepState
from raysweep.outcome import SweepProgress

log = logging.getLogger("raysweep")


class SweepMetrics:
    """Sets them, every `interval_s` at most. An error is logged once, and ends nothing."""

    def __init__(self, state: SweepState, interval_s: float) -> None:
        self._state, self._interval_s = state, interval_s
        self._set_at: float | None = None
        self._reported = 0
        self._states: set[str] = set()
        self._is_broken = False

    def show(self, progress: SweepProgress, *, is_last: bool = False) -> None:
        """Set them, if it is time. Call it on one thread."""
        now = time.monotonic()
        is_early = self._set_at is not None and now - self._set_at < self._interval_s
        if self._is_broken or (is_early and not is_last):
            return
        try:
            if self._set_at is None:
                self._make(progress)
            self._set(progress)
        except Exception:
            log.warning("prometheus: the sweep's metrics are not set any more", exc_info=True)
            self._is_broken = True
        self._set_at = now

    def _make(self, progress: SweepProgress) -> None:
        from ray.util.metrics import Counter, Gauge

        keys = ("sweep_id", "name")
        self._trials = Gauge("raysweep_trials", "Trials by state.", (*keys, "state"))
        self._reports = Counter("raysweep_reports", "Reports of trials that count.", keys)
        self._best = Gauge("raysweep_best", "The best value of the sweep's metric.", (*keys, "metric"))
        for each in (self._trials, self._reports, self._best):
            each.set_default_tags({"sweep_id": progress.sweep_id, "name": progress.name})

    def _set(self, progress: SweepProgress) -> None:
        counts = progress.counts.shown
        self._states |= counts.keys()
        for state in self._states:
            self._trials.set(float(counts.get(state, 0)), {"state": state})
        reported = sum(trial.results.reports for trial in self._state.trials.values())
        if reported > self._reported:
            self._reports.inc(float(reported - self._reported))
            self._reported = reported
        if progress.best is not None:
            self._best.set(float(progress.best.score), {"metric": progress.metric})
