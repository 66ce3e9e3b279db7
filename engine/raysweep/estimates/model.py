"""The behaviour of trials in a play: drawn from the trials so far, once more for each play."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from random import Random
from statistics import stdev
from typing import Final

from raysweep.core.vocabulary.failures import Failure
from raysweep.estimates.samples import Ran, Samples

_NEAREST_OF: Final = 4
_MIN_OF_NODE: Final = 3
_NOISE: Final = 0.001
NO_END: Final = 1_000_000_000
Curves = Mapping[int, Sequence[float]]


class Model:
    """The trials of one play. Every draw is from a resample of the samples: few samples are uncertain ones.

    `may_go_on`: a trial of which all that is known is that others ended it continues until something ends it.
    """

    def __init__(self, samples: Samples, values: Values, random: Random, *, may_go_on: bool) -> None:
        self.samples = samples
        self.values = values
        self.random = random
        ran = samples.ran
        picked = [random.choice(ran) for _ in ran]
        self._steps = [each.step_s for each in picked if each.step_s > 0.0] or [1.0]
        self._width = _width(self._steps)
        self._by_node: dict[str, list[float]] = {}
        for each in picked:
            if each.step_s > 0.0:
                self._by_node.setdefault(each.node, []).append(each.step_s)
        self._lengths = _Lengths(picked, ran, may_go_on=may_go_on)
        rate = (len(samples.failures) + 0.2) / (samples.attempts + 2.0) if samples.failures else 0.0
        self._failure_rate = min(0.95, rate)

    def step_s(self, node: str, longer_than: float = 0.0) -> float:
        """Seconds from report to report of a trial on this node; of one that is silent for so long, more."""
        steps = self._by_node.get(node, ())
        steps = steps if len(steps) >= _MIN_OF_NODE else self._steps
        if longer_than:
            longer = [each for each in steps if each > longer_than]
            if not longer:
                return longer_than * (1.0 + self.random.random())
            steps = longer
        # Smoothed: the slowest trial to come may be slower than any so far.
        drawn = self.random.choice(steps) * math.exp(self.random.gauss(0.0, self._width))
        return max(drawn, longer_than)

    def length(self, reported: int = 0) -> int:
        """After how many reports a trial returns that has made so many."""
        return self._lengths.draw(self.random, reported)

    def failure(self) -> tuple[Failure, float] | None:
        """The failure of an attempt, and the seconds from its start to it; None: it does not fail."""
        if not self._failure_rate or self.random.random() >= self._failure_rate:
            return None
        return self.random.choice(self.samples.failures)


class _Lengths:
    """The number of reports until trials return, where many are stopped before (Kaplan and Meier)."""

    def __init__(self, picked: Sequence[Ran], every: Sequence[Ran], *, may_go_on: bool) -> None:
        self._may_go_on = may_go_on
        self._longest = max((each.reports for each in every), default=1)
        returned: dict[int, int] = {}
        for each in picked:
            if each.has_returned:
                returned[each.reports] = returned.get(each.reports, 0) + 1
        if not returned:
            # Not to lose the only one that has returned in a resample.
            for each in every:
                if each.has_returned:
                    returned[each.reports] = returned.get(each.reports, 0) + 1
        reached = sorted(each.reports for each in picked)
        self._times = sorted(returned)
        self._left: list[float] = []
        left = 1.0
        for time in self._times:
            at_risk = max(1, len(reached) - bisect_left(reached, time))
            left *= max(0.0, 1.0 - returned[time] / at_risk)
            self._left.append(left)

    def draw(self, random: Random, reported: int) -> int:
        place = bisect_right(self._times, reported - 1) if reported else 0
        before = self._left[place - 1] if place else 1.0
        wanted = random.random() * before
        for number in range(place, len(self._times)):
            if self._left[number] < wanted or (self._left[number] == 0.0 and wanted == 0.0):
                return self._times[number]
        if self._may_go_on:
            return NO_END
        if self._times and place < len(self._times):
            return self._times[-1]
        return max(reported + 1, round(self._longest * (1.0 + 0.3 * random.random())))


class Values:
    """The metric of trials by their reports, from the curves of others; without any, places in an order.

    Args:
        curves: By trial, its values; NaN where one is not known.
        ends: The newest values of trials of which no curve is known.
        is_max: Whether larger is better.
    """

    def __init__(self, curves: Curves, ends: Sequence[float], *, is_max: bool) -> None:
        # The longest first: those with a value at report n are the first ones.
        self._curves = sorted(((number, curve) for number, curve in curves.items() if curve), key=_by_length)
        self._lengths = [-len(curve) for _, curve in self._curves]
        known = [curve[-1] for _, curve in self._curves if not math.isnan(curve[-1])] or [*ends]
        self._ends = known
        self._spread = _spread_of(known)
        self._sign = 1.0 if is_max else -1.0

    def course(self, random: Random, own: Sequence[float] = ()) -> Course:
        """The values of a trial; `own`: those that it has reported so far."""
        return Course(self, random, own)

    def follow(self, random: Random, report: int, value: float | None) -> Sequence[float] | None:
        """The curve of a trial that has made report number `report` (from 0), near to `value` before it."""
        count = bisect_right(self._lengths, -(report + 1))
        if not count:
            return None
        if value is None or not report:
            return self._curves[random.randrange(count)][1]
        some = [self._curves[random.randrange(count)][1] for _ in range(_NEAREST_OF)]
        return min(some, key=lambda curve: _far(curve[report - 1], value))

    def noise(self, random: Random) -> float:
        """A little, so that no two trials are equal."""
        return random.gauss(0.0, _NOISE * self._spread)

    def alone(self, random: Random) -> float:
        """The value of a trial for which there is no curve."""
        return random.choice(self._ends) if self._ends else self._sign * random.gauss(0.0, 1.0)


class Course:
    """The values of one trial, drawn as it comes along."""

    def __init__(self, values: Values, random: Random, own: Sequence[float]) -> None:
        self._values = values
        self._random = random
        self._last = own[-1] if own and not math.isnan(own[-1]) else None
        self._curve: Sequence[float] | None = None
        self._alone: float | None = None
        self._offset = values.noise(random)

    def value(self, report: int) -> float:
        """At report number `report`, from 0."""
        curve = self._curve
        if curve is None or len(curve) <= report:
            curve = self._curve = self._values.follow(self._random, report, self._last)
        value = math.nan if curve is None else curve[report]
        if math.isnan(value):
            if self._alone is None:
                self._alone = self._last if self._last is not None else self._values.alone(self._random)
            value = self._alone
        self._last = value
        return value + self._offset


def _width(steps: Sequence[float]) -> float:
    """The width of a kernel over the logarithms of these (Silverman's rule)."""
    if len(steps) < 2:
        return 0.3
    return 1.06 * stdev(map(math.log, steps)) * math.pow(len(steps), -0.2)


def _by_length(entry: tuple[int, Sequence[float]]) -> int:
    return -len(entry[1])


def _far(value: float, wanted: float) -> float:
    return math.inf if math.isnan(value) else abs(value - wanted)


def _spread_of(values: Sequence[float]) -> float:
    if len(values) < 4:
        return 1.0
    ordered = sorted(values)
    return ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]
