"""ASHA of several metrics: a rung is sorted by Pareto fronts, and who is not among its first ones stops.

Algorithm: Schmucker et al., "Multi-objective Asynchronous Successive Halving", 2021, arXiv:2106.12639,
with the sort of Salinas et al., "A Multi-objective Perspective on Jointly Tuning Hardware and
Hyperparameters", ICLR workshop on NAS 2021, as the default of Syne Tune's `MOASHA` is meant: fronts one
after the other, and in each the trial that is best by the first metric, then the furthest from those
that were taken (an epsilon net). Same rungs, same brackets, same rule: of n trials at a rung, with the one
that came last, it continues if no more than n / reduction_factor are ahead of it. What differs:

- Syne Tune (0.16) sorts the trials and takes the number at each place of that order for the rank of the
  trial with the place's number: from three trials at a rung on, it goes by another trial's rank;
- the bracket of a trial is a function of (seed, trial number), not of a global generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from raysweep.numeric.pareto import Point, count_ahead
from raysweep.schedulers.base import (
    NOTHING,
    STOP,
    TRAINING_ITERATION,
    Config,
    Decisions,
    Move,
    PolicySetup,
    Scheduler,
)
from raysweep.schedulers.machinery.rungs import check_asha, draw_bracket, milestones, softmax_cumulative
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.options import Grace, RungTimes, SchedulerOptions, TimeAttr, check_grace


class _Rung:
    """One milestone of one bracket and what was recorded there (smaller is better)."""

    __slots__ = ("milestone", "recorded")

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.recorded: dict[int, Point] = {}

    def takes(self, trial: int, point: Point, reduction_factor: float) -> bool:
        """Record a trial; whether it is among the first of those that are here."""
        self.recorded[trial] = point
        most = len(self.recorded) / reduction_factor
        return count_ahead([*self.recorded.values()], most) <= most


class MoashaOptions(SchedulerOptions):
    """ASHA of several metrics (Schmucker et al., 2021): rungs are sorted by Pareto fronts, as Syne Tune's."""

    metrics = "several"
    with_one_metric = "asha"

    max_t: int = Field(default=100, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time before which no trial is stopped."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """The first 1/reduction_factor of each rung continue."""
    brackets: int = Field(default=1, ge=1)
    """The number of brackets, each with a later first rung than the one before."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_grace(self.grace_period, self.max_t, self.time_attr)
        return self

    def rung_times(self) -> RungTimes:
        """The rungs of the first bracket, which has those of all others."""
        times = milestones(self.grace_period, self.max_t, self.reduction_factor, 0)
        return RungTimes(attr=self.time_attr, times=tuple(times), max_t=self.max_t)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return MoashaScheduler(
            modes=setup.modes,
            max_t=self.max_t,
            grace_period=self.grace_period,
            reduction_factor=self.reduction_factor,
            brackets=self.brackets,
            seed=setup.seed,
            time_attr=self.time_attr,
        )


class MoashaScheduler(Scheduler):
    """Asynchronous successive halving of several metrics, over trial numbers (arXiv:2106.12639).

    Args:
        modes: "min" or "max" for each metric, in their order; the first one is preferred within a front.
        max_t: a trial that reports this time stops. Units of the time attribute, as all times here.
        grace_period: milestone of the first rung: no trial is stopped earlier.
        reduction_factor: distance between rungs, and 1 / the share that continues. Greater than 1.
        brackets: number of brackets, as those of `AshaScheduler`.
        seed: decides, with the trial number, which bracket a trial falls into. Unused with one bracket.
        time_attr: the reported value that counts as time.

    Raises:
        SpecError: a parameter outside its range.
    """

    __slots__ = ("_brackets", "_cumulative", "_eta", "_parameters", "_seed", "_signs", "max_t", "time_attr")

    moves: frozenset[Move] = frozenset({"stop"})

    def __init__(
        self,
        *,
        modes: Sequence[Literal["min", "max"]],
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 3,
        brackets: int = 1,
        seed: int = 0,
        time_attr: str = TRAINING_ITERATION,
    ) -> None:
        check_asha(max_t, grace_period, reduction_factor, brackets, "moasha")
        self._parameters: dict[str, Any] = {
            "modes": list(modes),
            "max_t": max_t,
            "grace_period": grace_period,
            "reduction_factor": reduction_factor,
            "brackets": brackets,
            "seed": seed,
        }
        self.time_attr = time_attr
        self.max_t: float | None = float(max_t)
        self._signs = tuple(-1.0 if mode == "max" else 1.0 for mode in modes)
        self._eta, self._seed = reduction_factor, seed
        times = [milestones(grace_period, max_t, reduction_factor, s) for s in range(brackets)]
        self._brackets = [[_Rung(time) for time in each] for each in times]
        self._cumulative = softmax_cumulative([len(each) for each in times])

    def add(self, trial: int, config: Config) -> None:
        """Change nothing: which bracket a trial falls into follows from its number."""

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide on a report of the first metric alone, where there is no other."""
        return self.report_several(trial, time, (value,))

    def report_several(self, trial: int, time: float, values: Sequence[float]) -> Decisions:
        """Decide on one report: stop at `max_t`, or behind the first ones of the highest open rung reached.

        A rung is open to a trial that it has not recorded.
        """
        if time >= (self.max_t or inf):
            return ((trial, STOP),)
        return NOTHING if self._goes_on(trial, time, values) else ((trial, STOP),)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Record the last report of a trial that has completed, of the first metric alone."""
        return NOTHING if value is None else self.end_several(trial, time, (value,))

    def end_several(self, trial: int, time: float | None, values: Sequence[float]) -> Decisions:
        """Record a trial's last report where it reaches a new rung."""
        if time is not None:
            self._goes_on(trial, time, values)
        return NOTHING

    def remove(self, trial: int) -> Decisions:
        """Change nothing: the rungs keep what a trial recorded."""
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Return no decisions: it pauses nothing."""
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return parameters and, per bracket and rung, trials and raw values in the order of recording."""
        return {
            "parameters": dict(self._parameters),
            "rungs": [[self._dump(rung) for rung in rungs] for rungs in self._brackets],
        }

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned for the same parameters.

        Raises:
            SpecError: the parameters differ: their rungs cannot be compared.
        """
        check_parameters("moasha", state["parameters"], self._parameters)
        for rungs, saved_rungs in zip(self._brackets, state["rungs"], strict=True):
            for rung, saved in zip(rungs, saved_rungs, strict=True):
                points = map(self._signed, saved["values"])
                rung.recorded = dict(zip(saved["trials"], points, strict=True))

    def _goes_on(self, trial: int, time: float, values: Sequence[float]) -> bool:
        for rung in reversed(self._brackets[draw_bracket(trial, self._seed, self._cumulative)]):
            # As with Ray's rule for ASHA: a trial that jumped over lower rungs is measured there afterwards.
            if time >= rung.milestone and trial not in rung.recorded:
                return rung.takes(trial, self._signed(values), self._eta)
        return True

    def _signed(self, values: Sequence[float]) -> Point:
        return tuple(sign * float(value) for sign, value in zip(self._signs, values, strict=True))

    def _dump(self, rung: _Rung) -> dict[str, Any]:
        values = [list(self._signed(point)) for point in rung.recorded.values()]
        return {"milestone": rung.milestone, "trials": list(rung.recorded), "values": values}
