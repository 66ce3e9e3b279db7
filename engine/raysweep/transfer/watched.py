"""A full run beside the score that a law predicts of it: when it has fallen below, and how near it came.

A `Band` has the level that the law predicts, and how much worse than their own ends the good trials of the
proxy scales were at each part of their steps. `Fall` folds a run's reports; the same reports give the same
answer, so that a run that is resumed is judged as one that was never killed. Pure, and without NumPy.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raysweep.documents.mode import Mode
from raysweep.transfer.trials import as_float

PARTS: Final = 20
"""A curve has so many points, at equal parts of a run's steps."""
WORST: Final = 0.9
"""A curve has this quantile of the trials' distances from their ends."""
_KEPT: Final = 100_000

Series = Sequence[tuple[int, float]]
"""Of one trial, the iterations from 1 and the values of the metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The band in which a run should be.

    `score`: predicted of its end. `width`: half of the interval on the worse side. `widths`: so many of them
    below is too low. `curve`: by part of the steps, how much worse than its end a run may be. `steps`: how
    many reports it makes; None: not known, and nothing is judged. `reports`: so many in a row have to be low.
    """

    metric: str
    mode: Mode
    score: float
    width: float
    widths: float
    curve: Sequence[tuple[float, float]]
    steps: int | None
    reports: int

    def bound_at(self, iteration: int) -> float | None:
        """The worst score that is not too low at this report; None: there is none yet."""
        part = min(1.0, iteration / self.steps) if self.steps else 0.0
        place = bisect_right(self.curve, part + 1e-9, key=lambda point: point[0])
        if part < 1.0 and place == 0:
            return None
        worse = self.curve[place - 1][1] if place else 0.0
        reach = self.widths * self.width + worse
        return self.score + reach if self.mode == "min" else self.score - reach

    def is_below(self, iteration: int, value: float) -> bool:
        """True if this value at this report is too low; what is not a number is."""
        bound = self.bound_at(iteration)
        if bound is None:
            return False
        return not (value <= bound if self.mode == "min" else value >= bound)


class Fall:
    """The reports of a run beside its band; None as the band: it never falls."""

    def __init__(self, band: Band | None) -> None:
        self.band = band
        self._rows: list[tuple[int, bool]] = []

    def take(self, iteration: int, metrics: Mapping[str, Any]) -> None:
        """The next report, or one that is repeated; one without the metric says nothing."""
        value = as_float(metrics.get(self.band.metric)) if self.band is not None else None
        if self.band is None or value is None:
            return
        while self._rows and self._rows[-1][0] >= iteration:
            self._rows.pop()
        self._rows.append((iteration, self.band.is_below(iteration, value)))
        if len(self._rows) > 2 * _KEPT:
            del self._rows[:-_KEPT]

    @property
    def has_fallen(self) -> bool:
        """True if so many reports in a row were too low, the newest among them."""
        if self.band is None or len(self._rows) < self.band.reports:
            return False
        return all(is_below for _, is_below in self._rows[-self.band.reports :])


def curve_of(trials: Iterable[tuple[float, Series]], mode: Mode) -> list[tuple[float, float]]:
    """By part of the steps, how much worse than its own score a good trial was. Linear in reports.

    Args:
        trials: Of each its score, and its reports in order.
        mode: Whether less ("min") or more ("max") is better.
    """
    sign = 1.0 if mode == "min" else -1.0
    found = []
    known = [(score, series) for score, series in trials if series]
    for number in range(1, PARTS + 1):
        part = number / PARTS
        worse = [sign * (value - score) for score, series in known for value in _value_at(series, part)]
        if worse and len(worse) == len(known):
            found.append((part, max(0.0, _quantile(sorted(worse), WORST))))
    return found


def steps_of(trials: Iterable[Series]) -> int | None:
    """The number of reports that all of these made; None where they differ."""
    counts = {series[-1][0] for series in trials if series}
    return counts.pop() if len(counts) == 1 else None


def _value_at(series: Series, part: float) -> list[float]:
    """The last finite value up to a part of the steps, if there is one."""
    most = part * series[-1][0] + 1e-9
    values = [value for iteration, value in series if iteration <= most and math.isfinite(value)]
    return values[-1:]


def _quantile(values: Sequence[float], part: float) -> float:
    place = part * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])
