"""PASHA: ASHA by promotion, whose highest rung is raised only while the ranking of its trials is not
settled.

Algorithm: Bohdal et al., "PASHA: Efficient HPO and NAS with Progressive Resource Allocation", ICLR 2023,
arXiv:2207.06940. Trials are first promoted to the second rung only. Whenever one comes there, the ranking
of the trials at the highest rung is compared with theirs at the rung below; where it differs by more than
noise, the highest rung is the next one from then on. Two values differ by noise if they are no further
apart than most (90 %) pairs of trials whose curves cross at least twice.

Pairs are those of the paper: both at the highest rung, when one comes there. Syne Tune's implementation also
counts trials on their way there, after each report, which seldom changes the rung (`test_pasha.py`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any, Self

from pydantic import Field, model_validator

from raysweep.schedulers.base import Decisions, PolicySetup, Scheduler
from raysweep.schedulers.machinery.promotion import PromotionScheduler, Rung
from raysweep.schedulers.machinery.rungs import (
    milestones,
    percentile,
)
from raysweep.schedulers.options import (
    ComparingOptions,
    Grace,
    RungTimes,
    TimeAttr,
    check_grace,
)

NOISE_SHARE = 0.9
"""Of the distances between trials whose curves cross and cross back, the quantile that counts as noise."""


class PashaOptions(ComparingOptions):
    """PASHA (Bohdal et al., 2023): ASHA by promotion, with rungs added only while rankings change."""

    max_t: int = Field(default=100, ge=1)
    """The most time that a trial may ever get, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time of the first rung."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """The top 1/reduction_factor of each rung continues."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""
    delayed: bool = False
    """Let no more continue from a rung than 1/reduction_factor of those that came there (D-ASHA)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_grace(self.grace_period, self.max_t, self.time_attr)
        return self

    def rung_times(self) -> RungTimes:
        """The rungs that there may be."""
        times = milestones(self.grace_period, self.max_t, self.reduction_factor, 0)
        return RungTimes(attr=self.time_attr, times=tuple(times), max_t=self.max_t)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return PashaScheduler(
            mode=setup.mode,
            max_t=self.max_t,
            grace_period=self.grace_period,
            reduction_factor=self.reduction_factor,
            time_attr=self.time_attr,
            delayed=self.delayed,
        )


class PashaScheduler(PromotionScheduler):
    """Progressive asynchronous successive halving over trial numbers (Bohdal et al. 2023, arXiv:2207.06940).

    Args: as `PromotionScheduler`, with one bracket.
    """

    kind = "pasha"

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        del self._parameters["type"], self._parameters["brackets"], self._parameters["seed"]
        self._highest = 1
        self._noise = 0.0
        # What each trial has reported: times that grow, and scores.
        self._curves: dict[int, tuple[list[float], list[float]]] = {}
        # For the trials at the highest rung: how far those are apart that cross at least twice, in order.
        self._distances: list[float] = []

    @property
    def highest(self) -> int:
        """The index of the rung at which all trials wait, whatever their rank."""
        return self._highest

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide on one report, as `PromotionScheduler` does up to the highest rung."""
        times, scores = self._curves.setdefault(trial, ([], []))
        if not times or time > times[-1]:
            times.append(time)
            scores.append(float(value) * self._sign)
        return super().report(trial, time, value)

    def to_json(self) -> dict[str, Any]:
        """Return what `PromotionScheduler` does, the highest rung, the noise and the curves."""
        curves = [
            [trial, list(times), [score * self._sign for score in scores]]
            for trial, (times, scores) in self._curves.items()
        ]
        return super().to_json() | {"highest": self._highest, "noise": self._noise, "curves": curves}

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned for the same parameters.

        Raises:
            SpecError: the parameters differ: their rungs cannot be compared.
        """
        super().from_json(state)
        self._highest, self._noise = state["highest"], state["noise"]
        self._curves = {
            trial: (list(times), [value * self._sign for value in values])
            for trial, times, values in state["curves"]
        }
        self._distances = []
        rungs = self._brackets[0]
        if self._highest < len(rungs):
            known: list[int] = []
            for trial in rungs[self._highest].scores:
                self._note_crossings(trial, known, rungs[self._highest])
                known.append(trial)

    def _top(self, rungs: list[Rung]) -> int:
        return min(self._highest, len(rungs))

    def _record(self, trial: int, time: float, score: float) -> bool:
        has_reached = super()._record(trial, time, score)
        rungs = self._brackets[0]
        if has_reached and self._highest < len(rungs) and trial in rungs[self._highest].scores:
            self._judge(trial, rungs)
        return has_reached

    def _judge(self, trial: int, rungs: list[Rung]) -> None:
        """One more trial is at the highest rung: raise that where the ranking has not settled."""
        top, below = rungs[self._highest], rungs[self._highest - 1]
        self._note_crossings(trial, [other for other in top.scores if other != trial], top)
        if self._distances:
            self._noise = percentile(self._distances, NOISE_SHARE)
        if not is_settled(top, below, self._noise):
            self._highest += 1
            self._distances = []

    def _note_crossings(self, trial: int, others: list[int], top: Rung) -> None:
        for other in others:
            if self._cross_twice(trial, other, top.milestone):
                insort(self._distances, abs(top.scores[trial] - top.scores[other]))

    def _cross_twice(self, first: int, second: int, until: float) -> bool:
        """True if one curve overtakes the other and is overtaken, up to a time, where both have reported."""
        curve, other = (self._up_to(trial, until) for trial in (first, second))
        signs: list[bool] = []
        for time in sorted(curve.keys() & other.keys()):
            ahead = curve[time] > other[time]
            if curve[time] != other[time] and (not signs or signs[-1] != ahead):
                signs.append(ahead)
        return len(signs) > 2

    def _up_to(self, trial: int, until: float) -> dict[float, float]:
        times, scores = self._curves.get(trial, ([], []))
        count = bisect_right(times, until)
        return dict(zip(times[:count], scores[:count], strict=True))


def is_settled(top: Rung, below: Rung, noise: float) -> bool:
    """True if the trials at one rung rank there as at the rung below, but for noise (soft ranking).

    At each place, the trial that has it above must be no further than the noise, by its value below, from the
    trial that has it below.
    """
    now = [trial for _, trial in top.ordered if trial in below.scores]
    before = sorted(now, key=lambda trial: (-below.scores[trial], trial))
    return all(
        abs(below.scores[above] - below.scores[under]) <= noise
        for above, under in zip(now, before, strict=True)
    )
