"""Asynchronous successive halving (ASHA): stop a trial that is not among the best of its rung.

Algorithm: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, arXiv:1810.05934,
in the stopping form of `ray.tune.schedulers.AsyncHyperBandScheduler`: same rungs, same brackets, same
cutoffs, the same decision for every stream of reports. What differs is the cost and the randomness:

- a rung keeps its values on both sides of the cutoff in two heaps, so a report at a rung costs O(log n)
  instead of a sort of everything recorded, and a report between two milestones is one comparison;
- the bracket of a trial is a function of (seed, trial number), not of a global generator, so a replay
  agrees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from raysweep.documents.validation import Problem
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
from raysweep.schedulers.machinery.cutoff import RunningPercentile
from raysweep.schedulers.machinery.promotion import PromotionScheduler
from raysweep.schedulers.machinery.rungs import (
    check_asha,
    draw_bracket,
    milestones,
    softmax_cumulative,
)
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.options import (
    ComparingOptions,
    Grace,
    RungTimes,
    TimeAttr,
    check_grace,
)


class _Rung:
    """One milestone of one bracket and what was recorded there (larger is better)."""

    __slots__ = ("_cutoff", "milestone", "recorded")

    def __init__(self, milestone: float, fraction: float) -> None:
        self.milestone = milestone
        self.recorded: dict[int, float] = {}
        self._cutoff = RunningPercentile(fraction)

    def record(self, trial: int, score: float) -> None:
        """A NaN is recorded, but has no part in the cutoff."""
        self.recorded[trial] = score
        self._cutoff.add(score)

    def restore(self, recorded: dict[int, float], fraction: float) -> None:
        self.recorded = recorded
        self._cutoff = RunningPercentile(fraction, recorded.values())

    def is_below_cutoff(self, score: float) -> bool:
        return score < self._cutoff.value()


class AshaOptions(ComparingOptions):
    """Asynchronous successive halving (Li et al., 2018): the defaults are Ray Tune's."""

    max_t: int = Field(default=100, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time before which no trial is stopped."""
    reduction_factor: float = Field(default=4.0, gt=1)
    """The top 1/reduction_factor of each rung continues."""
    brackets: int = Field(default=1, ge=1)
    """The number of brackets, each with a later first rung than the one before."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""
    type: Literal["stopping", "promotion"] = "stopping"
    """The rule at a rung: trials that are not among the best stop, or all pause, and the best continue."""
    delayed: bool = False
    """Let no more continue from a rung than 1/reduction_factor of those that came there (D-ASHA, Li et
    al., "Hyper-Tune", 2022); with `type: promotion`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_grace(self.grace_period, self.max_t, self.time_attr)
        if self.delayed and self.type == "stopping":
            raise Problem(
                "applies only to type: promotion, where trials wait at rungs",
                "write type: promotion beside it, or leave it out",
                ("delayed",),
            )
        return self

    @property
    def pauses_by(self) -> tuple[str, str] | None:
        """By promotion all trials pause at their rungs."""
        return ("type", "stopping") if self.type == "promotion" else None

    def rung_times(self) -> RungTimes:
        """The rungs of the first bracket, which has those of all others."""
        times = milestones(self.grace_period, self.max_t, self.reduction_factor, 0)
        return RungTimes(attr=self.time_attr, times=tuple(times), max_t=self.max_t)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        make: Callable[..., Scheduler] = AshaScheduler
        if self.type == "promotion":
            make = partial(PromotionScheduler, delayed=self.delayed)
        return make(
            mode=setup.mode,
            max_t=self.max_t,
            grace_period=self.grace_period,
            reduction_factor=self.reduction_factor,
            brackets=self.brackets,
            seed=setup.seed,
            time_attr=self.time_attr,
        )


class AshaScheduler(Scheduler):
    """Asynchronous successive halving over trial numbers (Li et al. 2020, arXiv:1810.05934).

    Args:
        mode: "min" or "max": the direction of the reported values.
        max_t: a trial that reports this time stops. Units of the time attribute, as all times here.
        grace_period: milestone of the first rung: no trial is stopped earlier.
        reduction_factor: distance between rungs, and 1 / the share that survives one. Greater than 1,
            need not be whole.
        brackets: number of brackets; bracket s starts at `grace_period * reduction_factor**s`. A trial
            falls into one with a probability that is the softmax of the brackets' numbers of rungs.
        seed: decides, with the trial number, which bracket a trial falls into. Unused with one bracket.
        stop_last_trials: whether `max_t` ends a trial.
        time_attr: the reported value that counts as time.

    Raises:
        SpecError: a parameter outside its range.
    """

    __slots__ = (
        "_brackets",
        "_cumulative",
        "_fraction",
        "_next_time",
        "_parameters",
        "_seed",
        "_sign",
        "_stop_time",
        "max_t",
        "time_attr",
    )

    moves: frozenset[Move] = frozenset({"stop"})

    def __init__(
        self,
        *,
        mode: Literal["min", "max"],
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        seed: int = 0,
        stop_last_trials: bool = True,
        time_attr: str = TRAINING_ITERATION,
    ) -> None:
        check_asha(max_t, grace_period, reduction_factor, brackets)
        self._parameters: dict[str, Any] = {
            "mode": mode,
            "max_t": max_t,
            "grace_period": grace_period,
            "reduction_factor": reduction_factor,
            "brackets": brackets,
            "seed": seed,
            "stop_last_trials": stop_last_trials,
        }
        self.time_attr = time_attr
        self.max_t = float(max_t) if stop_last_trials else None
        self._sign = 1.0 if mode == "max" else -1.0
        self._seed = seed
        self._stop_time: float = max_t if stop_last_trials else math.inf
        # numpy receives (1 - 1/rf) * 100 and divides by 100: the detour can move the last bit.
        self._fraction = (1 - 1 / reduction_factor) * 100 / 100
        self._brackets = [
            [
                _Rung(milestone, self._fraction)
                for milestone in milestones(grace_period, max_t, reduction_factor, s)
            ]
            for s in range(brackets)
        ]
        self._cumulative = softmax_cumulative([len(rungs) for rungs in self._brackets])
        # Per active trial: before this time no rung has anything to decide about it.
        self._next_time: dict[int, float] = {}

    def add(self, trial: int, config: Config) -> None:
        """Make a trial known. A trial that was here before keeps its bracket and what it recorded."""
        self._next_time[trial] = self._first_open_milestone(trial)

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide on one report: stop at `max_t`, or below the cutoff of the highest open rung reached.

        A rung is open to a trial that it has not recorded. Times may repeat or go back (a restart from a
        checkpoint): a rung records a trial once. A trial that was not added is added. Costs one comparison
        unless a rung is reached.
        """
        if time >= self._stop_time:
            return ((trial, STOP),)
        next_time = self._next_time.get(trial)
        if next_time is None:
            next_time = self._next_time[trial] = self._first_open_milestone(trial)
        if time < next_time:
            return NOTHING
        decisions = self._decide(trial, time, value)
        self._next_time[trial] = self._first_open_milestone(trial)
        return decisions

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Record a trial's last report where it reaches a new rung, then forget the trial."""
        if time is not None and value is not None:
            self._decide(trial, time, value)
        return self.remove(trial)

    def remove(self, trial: int) -> Decisions:
        """Forget a trial; the rungs keep what it recorded. Unknown trials are ignored."""
        self._next_time.pop(trial, None)
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Return no decisions: it pauses nothing."""
        return NOTHING

    def bracket(self, trial: int) -> int:
        """Return the index of the bracket that a trial falls into."""
        return draw_bracket(trial, self._seed, self._cumulative)

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
        check_parameters("asha", state["parameters"], self._parameters)
        self._next_time.clear()
        for rungs, saved_rungs in zip(self._brackets, state["rungs"], strict=True):
            for rung, saved in zip(rungs, saved_rungs, strict=True):
                scores = [float(value) * self._sign for value in saved["values"]]
                rung.restore(dict(zip(saved["trials"], scores, strict=True)), self._fraction)

    def _decide(self, trial: int, time: float, value: float) -> Decisions:
        score = float(value) * self._sign
        decisions = NOTHING
        for rung in reversed(self._rungs_of(trial)):
            if not time >= rung.milestone:
                continue
            if trial in rung.recorded:
                if self._stop_time == math.inf:
                    break
                continue  # Ray's rule: a trial that jumped over lower rungs is measured there afterwards
            if rung.is_below_cutoff(score):
                decisions = ((trial, STOP),)
            rung.record(trial, score)
            break
        return decisions

    def _first_open_milestone(self, trial: int) -> float:
        for rung in self._rungs_of(trial):
            if trial not in rung.recorded:
                return rung.milestone
        return math.inf

    def _rungs_of(self, trial: int) -> list[_Rung]:
        brackets = self._brackets
        return brackets[0] if len(brackets) == 1 else brackets[self.bracket(trial)]

    def _dump(self, rung: _Rung) -> dict[str, Any]:
        values = (score * self._sign for score in rung.recorded.values())
        return {
            "milestone": rung.milestone,
            "trials": list(rung.recorded),
            "values": [value if math.isfinite(value) else repr(value) for value in values],
        }
