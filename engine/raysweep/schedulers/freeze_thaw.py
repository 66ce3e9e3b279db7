"""Freeze-thaw: a model of the learning curves says which paused trial continues, and when a new one begins.

After Swersky, Snoek and Adams, "Freeze-Thaw Bayesian Optimization", 2014, arXiv:1406.3896, and ifBO
(Rakotoarison et al., 2024, arXiv:2404.16795): after every interval each slot goes to who is expected to gain
most over the best loss so far by the end, `max_t`. That is a trial that runs or is paused, by its own curve,
or a new one, by what all others are predicted to end at. No more than `basket` trials are kept; for a new
one the least promising ends.

Other than theirs: curves are power laws of their own (`curves`), not coupled through their configs; which
config a new trial gets is the search's to say.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from raysweep.errors import SpecError
from raysweep.numeric.means import sum_of_squares
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
from raysweep.schedulers.machinery.curves import Curve, Prior, expected_gain, prior_of
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.options import ComparingOptions, Grace, RungTimes, TimeAttr, check_grace

_ENOUGH: Final = 3
"""The number of trials that have to be known before a new one is compared with them."""
_MOST: Final = 1e75
"""The largest loss that counts; more counts as this: its square is still a number."""
_KEPT: Final = 64
"""Of so many trials that have ended it is remembered how they began, and where they were to end."""
_HOPELESS: Final = 3e-2
"""Trials that are expected to gain less, in standard deviations of the predicted ends, do not continue."""


class FreezeThawOptions(ComparingOptions):
    """Freeze-thaw (Swersky et al., 2014): a model of the learning curves says which trial continues."""

    max_t: int = Field(default=81, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time before which no trial is paused."""
    interval: float = Field(default=1, gt=0)
    """The time that a trial runs until the next decision about it; it needs a checkpoint there."""
    basket: int = Field(default=10, ge=1)
    """The number of trials that are kept, running or paused; for a new one the least promising ends."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_grace(self.grace_period, self.max_t, self.time_attr)
        return self

    def rung_times(self) -> RungTimes:
        """It decides at each interval."""
        return RungTimes(attr=self.time_attr, interval=self.interval, max_t=self.max_t)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return FreezeThawScheduler(
            mode=setup.mode,
            max_t=self.max_t,
            grace_period=self.grace_period,
            interval=self.interval,
            basket=self.basket,
            time_attr=self.time_attr,
        )


class FreezeThawScheduler(Scheduler):
    """Pauses and resumes trials by what their learning curves are expected to come to.

    Args:
        mode: "min" or "max": the direction of the reported values.
        max_t: a trial that reports this time has completed. Units of the time attribute, as all times here.
        grace_period: the time before which no trial is paused.
        interval: so much time a trial runs until it is decided about again.
        basket: how many trials are kept, running or paused.
        time_attr: the reported value that counts as time.

    Raises:
        SpecError: a parameter outside its range.
    """

    moves: frozenset[Move] = frozenset({"stop", "pause"})

    def __init__(
        self,
        *,
        mode: Literal["min", "max"],
        max_t: float = 81,
        grace_period: float = 1,
        interval: float = 1,
        basket: int = 10,
        time_attr: str = TRAINING_ITERATION,
    ) -> None:
        for name, value, least in (
            ("max_t", max_t, 1),
            ("grace_period", grace_period, 0),
            ("basket", basket, 1),
        ):
            if not value >= least:
                problem = f"{value!r} is less than {least}"
                raise SpecError(f"scheduler.freeze_thaw.{name}", problem, "use more")
        if not interval > 0:
            raise SpecError("scheduler.freeze_thaw.interval", f"{interval!r} is not above 0", "use 1 or more")
        self._parameters: dict[str, Any] = {
            "mode": mode,
            "max_t": max_t,
            "grace_period": grace_period,
            "interval": float(interval),
            "basket": basket,
        }
        self.time_attr = time_attr
        self.max_t: float | None = float(max_t)
        self._sign = -1.0 if mode == "max" else 1.0
        # Of the trials that have reported and not ended.
        self._curves: dict[int, Curve] = {}
        self._decided_at: dict[int, float] = {}
        self._paused: set[int] = set()
        # Of those that have ended: first value, fall, and where they ended or were to.
        self._ended: list[list[float]] = []
        self._best = math.inf
        self._has_completed = False
        self._known = 0  # trials that were added; and those of them that have not reported yet
        self._fresh: set[int] = set()
        self._hoped_at: int | None = None  # how many were known when a slot was last left to a new one
        self._is_dry = False  # nothing came
        self._width = 1  # the most that ran at once

    def add(self, trial: int, config: Config) -> None:
        """Count a trial: new ones still come."""
        if trial not in self._curves and trial not in self._fresh:
            self._known += 1
            self._fresh.add(trial)
            self._is_dry = False

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide who has the slot for the next interval."""
        curve = self._curves.setdefault(trial, Curve())
        self._paused.discard(trial)
        self._fresh.discard(trial)
        curve.add(time, max(-_MOST, min(_MOST, self._sign * float(value))))
        self._best = min(self._best, curve.least)
        self._width = max(self._width, len(self._curves) - len(self._paused))
        since = time - self._decided_at.get(trial, 0.0)
        is_early = time < self._parameters["grace_period"] or since < self._parameters["interval"]
        if is_early or time >= self._parameters["max_t"]:
            return NOTHING
        self._decided_at[trial] = time
        self._look_for_new()
        return self._share_out(trial)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Take out a trial that has come to its end; a paused one may have its slot."""
        self._has_completed = True
        self._forget(trial)
        return self._fill()

    def remove(self, trial: int) -> Decisions:
        """Take a trial out; nothing is decided, as one that ends with the sweep may come back."""
        self._forget(trial)
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Continue with those that may still gain, as many as ever ran at once; at first with the best."""
        self._is_dry = True
        self._paused = {number for number in paused if number in self._curves}
        gains, least = self._gains(self._paused), self._hopeless()
        hopeful = [number for number in gains if gains[number] > least]
        if not hopeful and not self._has_completed and gains:
            prior = self._prior()
            ends = {number: self._curves[number].predict(self._end, prior)[0] for number in gains}
            hopeful = [min(ends, key=lambda number: (ends[number], number))]
        going = hopeful[: self._width]
        self._paused.difference_update(going)
        stopped = [number for number in gains if number not in hopeful]
        return (*((number, Resume()) for number in going), *((number, STOP) for number in stopped))

    def to_json(self) -> dict[str, Any]:
        """Return the parameters, the curves and what is known of those that have ended."""
        return {
            "parameters": dict(self._parameters),
            "curves": [[trial, _plain(curve)] for trial, curve in self._curves.items()],
            "decided_at": [[trial, at] for trial, at in self._decided_at.items()],
            "paused": sorted(self._paused),
            "ended": [list(each) for each in self._ended],
            "best": None if math.isinf(self._best) else self._best,
            "has_completed": self._has_completed,
            "known": self._known,
            "fresh": sorted(self._fresh),
            "hoped_at": self._hoped_at,
            "is_dry": self._is_dry,
            "width": self._width,
        }

    def from_json(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned.

        Raises:
            SpecError: other parameters.
        """
        check_parameters("freeze_thaw", state["parameters"], self._parameters)
        self._curves = {
            trial: Curve(**plain | {"sums": [list(sums) for sums in plain["sums"]]})
            for trial, plain in state["curves"]
        }
        self._decided_at = dict(state["decided_at"])
        self._paused = set(state["paused"])
        self._ended = [list(each) for each in state["ended"]]
        self._best = math.inf if state["best"] is None else state["best"]
        self._has_completed = state["has_completed"]
        self._fresh = set(state["fresh"])
        self._known, self._hoped_at = state["known"], state["hoped_at"]
        self._is_dry, self._width = state["is_dry"], state["width"]

    # -- who gets a slot ------------------------------------------------------------------------------------

    @property
    def _end(self) -> float:
        return float(self._parameters["max_t"])

    def _look_for_new(self) -> None:
        """Note if no new trial came when a slot was left to one."""
        if self._hoped_at is not None:
            self._is_dry = self._is_dry or (self._known == self._hoped_at and not self._fresh)
            self._hoped_at = None

    def _share_out(self, trial: int) -> Decisions:
        gains = self._gains({*self._paused, trial})
        first = next(iter(gains))
        new = -1.0 if self._is_dry else self._gain_of_new()
        decisions: list[tuple[int, Verdict]] = []
        if new > gains[first]:
            decisions += self._make_room(gains, trial)
            self._hoped_at = self._known
            if (trial, STOP) not in decisions:
                self._paused.add(trial)
                decisions.append((trial, PAUSE))
        elif first != trial:
            self._paused.discard(first)
            self._paused.add(trial)
            decisions += [(first, Resume()), (trial, PAUSE)]
        return (*decisions, *self._fill())

    def _fill(self) -> Decisions:
        """Give slots that stand empty to paused trials if no new ones come."""
        free = self._width - (len(self._curves) - len(self._paused))
        if not self._is_dry or free <= 0 or not self._paused:
            return NOTHING
        gains, least = self._gains(self._paused), self._hopeless()
        going = [number for number in gains if gains[number] > least][:free]
        self._paused -= set(going)
        return tuple((number, Resume()) for number in going)

    def _make_room(self, gains: dict[int, float], trial: int) -> list[tuple[int, Verdict]]:
        """The basket holds no more: who is expected to gain least ends."""
        if len(self._curves) < self._parameters["basket"]:
            return []
        least = list(gains)[-1]
        self._forget(least)
        return [(least, STOP)]

    def _gains(self, trials: Collection[int]) -> dict[int, float]:
        """The expected gain of each over the best so far by its end: the most first."""
        if not trials:
            return {}
        prior, best = self._prior(), self._best_end()
        found = {
            number: expected_gain(best, *self._curves[number].predict(self._end, prior))
            for number in sorted(trials)
        }
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    def _gain_of_new(self) -> float:
        """The expected gain of a trial of which nothing is known but the results of the others."""
        ends = self._ends()
        if len(ends) < _ENOUGH:
            return math.inf
        mean, sd = _moments(ends)
        return expected_gain(self._best_end(), mean, sd)

    def _best_end(self) -> float:
        """The least that any trial has ended at, or is predicted to."""
        return min(self._ends(), default=math.inf)

    def _hopeless(self) -> float:
        return _HOPELESS * _moments(self._ends())[1]

    def _ends(self) -> list[float]:
        prior = self._prior()
        ahead = [curve.predict(self._end, prior)[0] for curve in self._curves.values()]
        return [*(each[2] for each in self._ended), *ahead]

    def _prior(self) -> Prior:
        curves = [curve for curve in self._curves.values() if curve.count]
        firsts = [*(each[0] for each in self._ended), *(curve.first for curve in curves)]
        falls = [each[1] for each in self._ended]
        falls += [curve.first - curve.last for curve in curves if curve.count > 1]
        return prior_of(firsts, falls)

    def _forget(self, trial: int) -> None:
        self._paused.discard(trial)
        self._fresh.discard(trial)
        self._decided_at.pop(trial, None)
        curve = self._curves.get(trial)
        if curve is None:
            return
        if not curve.count:
            del self._curves[trial]
            return
        end = curve.last if curve.time >= self._end else curve.predict(self._end, self._prior())[0]
        del self._curves[trial]
        self._ended = [*self._ended, [curve.first, curve.first - curve.last, end]][-_KEPT:]


def _plain(curve: Curve) -> dict[str, Any]:
    fields: dict[str, Any] = asdict(curve)
    if math.isinf(curve.least):
        fields["least"] = curve.last
    return fields


def _moments(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum_of_squares(each - mean for each in values) / len(values))
