"""Median stopping: stop a trial whose best is worse than the median of the others' means up to its time.

Algorithm: Golovin et al., "Google Vizier: A Service for Black-Box Optimization", KDD 2017, in the form of
`ray.tune.schedulers.MedianStoppingRule`: the same decision for every stream of reports. What differs:

- the means up to a time at which trials have been compared are kept in order, so a report at a time that
  was seen before costs one search in a sorted list instead of a walk through all reports of all trials;
- a time that a trial has reported before (it continued from a checkpoint) is not counted a second time;
- a trial never yields its slot to others only because there are too few of them to compare it with.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from raysweep.schedulers.base import (
    NOTHING,
    PAUSE,
    STOP,
    TRAINING_ITERATION,
    Config,
    Decisions,
    Move,
    PolicySetup,
    Resume,
    Scheduler,
)
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.options import (
    ComparingOptions,
    RungTimes,
    TimeAttr,
)


class _Curve:
    """The reports of one trial: times that grow, values, and their sums from the grace period on."""

    __slots__ = ("best", "first", "sums", "times", "values")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.values: list[float] = []
        self.sums: list[float] = [0.0]
        self.first = 0
        self.best = -math.inf

    @property
    def last(self) -> float:
        return self.times[-1] if self.times else -math.inf

    def add(self, time: float, value: float, score: float, grace_period: float) -> None:
        if time < grace_period:
            self.first += 1
        self.sums.append(self.sums[-1] + value if time >= grace_period else 0.0)
        self.times.append(time)
        self.values.append(value)
        self.best = max(self.best, score)

    def mean(self, time: float) -> float:
        """The mean of what was reported up to `time`; NaN for nothing."""
        until = bisect_right(self.times, time)
        return self.sums[until] / (until - self.first) if until > self.first else math.nan


class MedianStoppingOptions(ComparingOptions):
    """Median stopping (Golovin et al., "Google Vizier", 2017), with the decisions of Ray Tune's rule."""

    grace_period: float = Field(default=1, ge=0)
    """The time before which no trial is stopped, and from which on means are taken."""
    min_samples_required: int = Field(default=3, ge=1)
    """The number of other trials that must have come as far before one is stopped."""
    hard_stop: bool = True
    """Stop a trial below the median for good; else it is paused until no other runs."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""

    @property
    def pauses_by(self) -> tuple[str, str] | None:
        """Without a hard stop, a trial below the median pauses."""
        return None if self.hard_stop else ("hard_stop", "true")

    def rung_times(self) -> RungTimes:
        """Without rungs: each report may decide."""
        return RungTimes(attr=self.time_attr)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return MedianScheduler(
            mode=setup.mode,
            grace_period=self.grace_period,
            min_samples_required=self.min_samples_required,
            hard_stop=self.hard_stop,
            time_attr=self.time_attr,
        )


class MedianScheduler(Scheduler):
    """The median stopping rule over trial numbers (Golovin et al. 2017).

    Args:
        mode: "min" or "max": the direction of the reported values.
        grace_period: no trial is stopped before this time, and means are taken from it on. Units of the time
            attribute.
        min_samples_required: of so many other trials there must be a mean.
        hard_stop: whether a trial below the median is stopped; else it is paused, and runs to its end once no
            other trial does.
        time_attr: the reported value that counts as time.
    """

    __slots__ = (
        "_condemned",
        "_curves",
        "_means",
        "_parameters",
        "_sign",
        "_times",
        "_verdict",
        "moves",
        "time_attr",
    )

    max_t = None

    def __init__(
        self,
        *,
        mode: Literal["min", "max"],
        grace_period: float = 1,
        min_samples_required: int = 3,
        hard_stop: bool = True,
        time_attr: str = TRAINING_ITERATION,
    ) -> None:
        self._parameters: dict[str, Any] = {
            "mode": mode,
            "grace_period": grace_period,
            "min_samples_required": min_samples_required,
            "hard_stop": hard_stop,
        }
        self.time_attr = time_attr
        self.moves: frozenset[Move] = frozenset({"stop"} if hard_stop else {"pause"})
        self._verdict = STOP if hard_stop else PAUSE
        self._sign = 1.0 if mode == "max" else -1.0
        self._curves: dict[int, _Curve] = {}
        # Trials that were below the median: those that were paused are not judged again.
        self._condemned: set[int] = set()
        # Per time of comparison, the means up to it of all trials that have come as far, in order.
        self._means: dict[float, list[float]] = {}
        self._times: list[float] = []  # the times of comparison, in order

    def add(self, trial: int, config: Config) -> None:
        """Do nothing: a trial counts from its first report."""

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide on one report. A time that the trial has reported before changes nothing."""
        if trial in self._condemned or not self._is_new(trial, time):
            return NOTHING
        others = self._others(time) if time >= self._parameters["grace_period"] else []
        # Those up to now are counted before this report is among them.
        count = len(others)
        median = self._median(others) if count else math.nan
        best = self._record(trial, time, float(value))
        if count < self._parameters["min_samples_required"] or not best < median:
            return NOTHING
        self._condemned.add(trial)
        return ((trial, self._verdict),)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Take the last report into account: others are compared with a trial that has completed, too."""
        if time is not None and value is not None and self._is_new(trial, time):
            self._record(trial, time, float(value))
        return NOTHING

    def remove(self, trial: int) -> Decisions:
        """Return no decisions: what a trial has reported still counts for others."""
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Let the paused trials run to their ends."""
        return tuple((trial, Resume()) for trial in sorted(paused))

    def to_json(self) -> dict[str, Any]:
        """Return parameters, and what each trial has reported."""
        curves = [[trial, list(curve.times), list(curve.values)] for trial, curve in self._curves.items()]
        return {"parameters": dict(self._parameters), "curves": curves, "below": sorted(self._condemned)}

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned for the same parameters.

        Raises:
            SpecError: the parameters differ.
        """
        check_parameters("median_stopping", state["parameters"], self._parameters)
        self._curves, self._means, self._times = {}, {}, []
        for trial, times, values in state["curves"]:
            curve = self._curves[trial] = _Curve()
            for time, value in zip(times, values, strict=True):
                curve.add(time, value, value * self._sign, self._parameters["grace_period"])
        self._condemned = set(state["below"])

    def _is_new(self, trial: int, time: float) -> bool:
        curve = self._curves.get(trial)
        return curve is None or time > curve.last

    def _others(self, time: float) -> list[float]:
        """The means up to `time` of all trials that have come as far, in order."""
        found = self._means.get(time)
        if found is None:
            curves = (curve for curve in self._curves.values() if curve.last >= time)
            found = sorted(mean for curve in curves if math.isfinite(mean := curve.mean(time)))
            self._means[time] = found
            insort(self._times, time)
        return found

    def _record(self, trial: int, time: float, value: float) -> float:
        """Take note of a report, and put the trial's means where others are compared; returns its best."""
        curve = self._curves.get(trial)
        if curve is None:
            curve = self._curves[trial] = _Curve()
        first = bisect_right(self._times, curve.last)
        curve.add(time, value, value * self._sign, self._parameters["grace_period"])
        for reached in self._times[first : bisect_right(self._times, time)]:
            mean = curve.mean(reached)
            if math.isfinite(mean):
                insort(self._means[reached], mean)
        return curve.best

    def _median(self, ordered: list[float]) -> float:
        middle = len(ordered) // 2
        median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        return median * self._sign
