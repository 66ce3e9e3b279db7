"""The reports of a trial at a rung, and the longest wait there for the verdict.

A report returns before anybody has looked at it. So a trial that is stopped by one is a step further by
then, and that step was for nothing: of trials that end at their first rung, every second one. Where it is
known beforehand that a report decides, it waits for the verdict, for as long at most as the step before it
took: more than that a wait cannot save.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from math import floor, isfinite
from numbers import Real
from typing import Any, Final

from raysweep.worker.sweep_info import Rungs

LEAST_S: Final = 0.02
"""Of shorter steps none is worth a wait."""
MOST_S: Final = 2.0
"""A storage that does not answer holds up no trial for longer."""


class RungWatch:
    """The steps of one attempt. Not thread-safe.

    Args:
        rungs: when something is decided.
        iteration: how many reports of the trial lie behind the attempt.
        now: the time, in seconds.
    """

    def __init__(self, rungs: Rungs, iteration: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rungs = rungs
        self._now = now
        self._iteration = iteration
        self._time = 0.0 if rungs.attr else float(iteration)
        self._began = now()

    def patience_s(self, metrics: Mapping[str, Any], index: int) -> float:
        """The longest wait of report `index` of the attempt for a verdict; 0: it does not decide."""
        took_s = self._now() - self._began
        rungs, before = self._rungs, self._time
        now = metrics.get(rungs.attr) if rungs.attr else self._iteration + index + 1
        if not isinstance(now, Real) or not isfinite(now):
            return 0.0
        now = self._time = float(now)
        decides = bisect_right(rungs.times, now) > bisect_right(rungs.times, before) or (
            rungs.interval > 0.0 and floor(now / rungs.interval) > floor(before / rungs.interval)
        )
        if not decides or took_s < LEAST_S or (rungs.below is not None and now >= rungs.below):
            return 0.0
        return min(took_s, MOST_S)

    def begin_step(self) -> None:
        """The report returns."""
        self._began = self._now()
