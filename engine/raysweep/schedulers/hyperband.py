"""HyperBand: brackets of successive halving that trade the number of configs against the time of each.

Algorithm: Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR
2018, arXiv:1603.06560. Trials fill brackets in the order of their numbers, as in the paper the bracket
with the most trials and the least time for each first; after the last bracket of a band comes another
band. In a bracket, each trial is paused when it has had its time; once all of them have, the best continue
and the others stop.

As in `ray.tune.schedulers.HyperBandScheduler`, of n trials ceil(n / reduction_factor) continue (the paper
rounds down), and a trial that ends by itself or fails leaves its bracket. Other than Ray's:

- Ray begins with the bracket that stops no trial, and ends with the one that stops most;
- a bracket waits until it has all of its trials; only when there are no more does it continue with those it
  has;
- the last rung is at `max_t`, also where that is no power of the reduction factor;
- of trials with equal values, those with the lower numbers continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from pydantic import Field

from raysweep.errors import SpecError
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
    Verdict,
)
from raysweep.schedulers.machinery.brackets import bracket_size, halvings, milestone, rungs_of_brackets
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.options import (
    ComparingOptions,
    RungTimes,
    TimeAttr,
)

Result = tuple[float, float]
"""Time and score (larger is better)."""


@dataclass(slots=True)
class _Bracket:
    """Trials that are halved together, `halvings` more times; `waiting` holds those that have had their time.

    `size`: how many trials may continue to the present rung. `gone`: members that have ended. One that comes
    back (a cut or failed trial that runs again) is a member as before.
    """

    number: int
    size: int
    halvings: int
    is_full: bool = False
    members: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    waiting: dict[int, Result] = field(default_factory=dict)

    def is_due(self) -> bool:
        """True if all that are left wait."""
        live = [number for number in self.members if number not in self.gone]
        return self.is_full and bool(live) and all(number in self.waiting for number in live)


class HyperbandOptions(ComparingOptions):
    """HyperBand (Li et al., 2018): brackets of synchronous successive halving, by pausing."""

    max_t: int = Field(default=81, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """The top 1/reduction_factor of a bracket continues at each rung."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""

    def rung_times(self) -> RungTimes:
        """The rungs of all brackets."""
        times = rungs_of_brackets(self.max_t, self.reduction_factor)
        return RungTimes(attr=self.time_attr, times=times, max_t=self.max_t)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return HyperBandScheduler(
            mode=setup.mode,
            max_t=self.max_t,
            reduction_factor=self.reduction_factor,
            time_attr=self.time_attr,
        )


class HyperBandScheduler(Scheduler):
    """HyperBand over trial numbers (Li et al. 2018, arXiv:1603.06560).

    Args:
        mode: "min" or "max": the direction of the reported values.
        max_t: a trial that reports this time has completed. Units of the time attribute, as all times here.
        reduction_factor: 1 / the share of a bracket that continues at each rung. Greater than 1.
        time_attr: the reported value that counts as time.

    Raises:
        SpecError: a parameter outside its range.
    """

    __slots__ = (
        "_bracket_of",
        "_brackets",
        "_eta",
        "_parameters",
        "_s_max",
        "_sign",
        "_touched",
        "max_t",
        "time_attr",
    )

    moves: frozenset[Move] = frozenset({"stop", "pause"})

    def __init__(
        self,
        *,
        mode: Literal["min", "max"],
        max_t: float = 81,
        reduction_factor: float = 3,
        time_attr: str = TRAINING_ITERATION,
    ) -> None:
        if not max_t >= 1:
            raise SpecError("scheduler.hyperband.max_t", f"{max_t!r} is less than 1", "use 9 or more")
        if not reduction_factor > 1:
            problem = f"{reduction_factor!r} is not greater than 1"
            raise SpecError("scheduler.hyperband.reduction_factor", problem, "use 3 or 4")
        self._parameters: dict[str, Any] = {
            "mode": mode,
            "max_t": max_t,
            "reduction_factor": reduction_factor,
        }
        self.time_attr = time_attr
        self.max_t: float | None = float(max_t)
        self._eta = reduction_factor
        self._s_max = halvings(max_t, reduction_factor)
        self._sign = 1.0 if mode == "max" else -1.0
        self._brackets: list[_Bracket] = []
        self._bracket_of: dict[int, _Bracket] = {}
        self._touched: set[int] = set()  # brackets in which something has changed since they were looked at

    def add(self, trial: int, config: Config) -> None:
        """Put a trial into the bracket that is being filled; one that was here before is where it was."""
        bracket = self._bracket_of.get(trial)
        if bracket is not None:
            bracket.gone.discard(trial)
            return
        if not self._brackets or self._brackets[-1].is_full:
            s = self._s_max - len(self._brackets) % (self._s_max + 1)
            size = bracket_size(s, self._s_max, self._eta)
            self._brackets.append(_Bracket(number=len(self._brackets), size=size, halvings=s))
        bracket = self._bracket_of[trial] = self._brackets[-1]
        bracket.members.append(trial)
        bracket.is_full = len(bracket.members) == bracket.size

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide on one report: a trial that has had its time waits for its bracket."""
        bracket = self._bracket_of.get(trial)
        if bracket is None:
            self.add(trial, {})
            bracket = self._bracket_of[trial]
        if time < self._milestone(bracket) or time >= self._parameters["max_t"]:
            return NOTHING
        bracket.gone.discard(trial)
        self._touched.add(bracket.number)
        # A trial that came back and reports once more is measured by its first result at the rung.
        bracket.waiting.setdefault(trial, (time, float(value) * self._sign))
        decisions = self._halve_all()
        return decisions if any(number == trial for number, _ in decisions) else (*decisions, (trial, PAUSE))

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Take a trial out of its bracket, which may be what the others waited for."""
        self.remove(trial)
        return self._halve_all()

    def remove(self, trial: int) -> Decisions:
        """Take a trial out of its bracket.

        Nothing is decided here: a trial that ends with the sweep may come back. The others are decided about
        with the next report, or when nothing else can run.
        """
        bracket = self._bracket_of.get(trial)
        if bracket is not None:
            bracket.gone.add(trial)
            self._touched.add(bracket.number)
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Continue with brackets that nothing fills any more."""
        decisions = self._halve_all()
        for bracket in self._brackets:
            if not decisions and not bracket.is_full:
                bracket.is_full, bracket.size = True, len(bracket.members)
                self._touched.add(bracket.number)
                decisions = self._halve_all()
        return decisions

    def to_json(self) -> dict[str, Any]:
        """Return parameters, and for each bracket what it is made of."""
        return {
            "parameters": dict(self._parameters),
            "brackets": [
                {
                    "size": bracket.size,
                    "halvings": bracket.halvings,
                    "is_full": bracket.is_full,
                    "members": list(bracket.members),
                    "gone": sorted(bracket.gone),
                    "waiting": [[number, *result] for number, result in bracket.waiting.items()],
                }
                for bracket in self._brackets
            ],
        }

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned for the same parameters.

        Raises:
            SpecError: the parameters differ: their brackets cannot be compared.
        """
        check_parameters("hyperband", state["parameters"], self._parameters)
        self._brackets = [
            _Bracket(
                number=number,
                size=saved["size"],
                halvings=saved["halvings"],
                is_full=saved["is_full"],
                members=list(saved["members"]),
                gone=set(saved["gone"]),
                waiting={trial: (time, score) for trial, time, score in saved["waiting"]},
            )
            for number, saved in enumerate(state["brackets"])
        ]
        self._bracket_of = {trial: bracket for bracket in self._brackets for trial in bracket.members}
        self._touched = set(range(len(self._brackets)))

    def _milestone(self, bracket: _Bracket) -> float:
        """The time at which the bracket's trials wait for each other; at the last rung they complete."""
        return milestone(self._parameters["max_t"], self._eta, bracket.halvings)

    def _halve_all(self) -> Decisions:
        decisions: list[tuple[int, Verdict]] = []
        for bracket in [self._brackets[number] for number in sorted(self._touched)]:
            while bracket.halvings and bracket.is_due():
                decisions += self._halve(bracket)
        self._touched.clear()
        return tuple(decisions) or NOTHING

    def _halve(self, bracket: _Bracket) -> Decisions:
        """The best continue, unless they have come as far as the next rung already; the others stop."""
        bracket.size = ceil(bracket.size / self._eta)
        bracket.halvings -= 1
        live = [number for number in bracket.waiting if number not in bracket.gone]
        live.sort(key=lambda number: (-bracket.waiting[number][1], number))
        good, bad = live[: bracket.size], live[bracket.size :]
        ahead = self._milestone(bracket)
        results, bracket.waiting = bracket.waiting, {}
        for number in good:
            if results[number][0] >= ahead and bracket.halvings:
                bracket.waiting[number] = results[number]
        bracket.gone.update(bad)
        going = (number for number in sorted(good) if number not in bracket.waiting)
        return (*((number, Resume()) for number in going), *((number, STOP) for number in sorted(bad)))
