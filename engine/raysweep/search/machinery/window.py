"""The results that make a model, out of many: an ask costs no more the longer a search continues.

The best and the newest. What is best is found by what was told alone, in whatever order that was; what is
newest goes by the order of the trials. So a search that is told again after a restart chooses the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from raysweep.numeric.pareto import Point, find_front
from raysweep.search.base import Result

BEST_PART: Final = 3
"""This part of the results that are kept are the best ones, by one metric."""
FRONT_PART: Final = 2
"""Of several metrics, the front may be this part of them; of a larger one, so many are kept, all along it."""


class Window:
    """The best and the newest of all results, or all of them where there are no more than `size`.

    Args:
        size: how many results a model is made of at most.
        modes: "min" or "max" for each metric.
    """

    def __init__(self, size: int, modes: Sequence[str]) -> None:
        self._size = size
        self._signs = [-1.0 if mode == "max" else 1.0 for mode in modes]
        self._best = self._make_best()
        self._results: dict[int, Result] = {}
        self._is_changed = False
        self._places: list[int] = []  # sorted

    @property
    def count(self) -> int:
        """The number of results."""
        return len(self._places)

    @property
    def is_full(self) -> bool:
        """True if there are more results than it keeps."""
        return len(self._places) > self._size

    def add(self, place: int, result: Result | None) -> None:
        """Take note of a result, in place of an earlier one of this trial; None: there is none any more.

        Args:
            place: that of its trial in the order of trials.
            result: what it gave.
        """
        if self._results.pop(place, None) is not None:
            self._is_changed = True
            self._places.remove(place)
        if result is not None:
            self._results[place] = result
            insort(self._places, place)
            self._rank(place, result)

    def kept(self) -> list[int]:
        """Return the places of those that count, in order."""
        if not self.is_full:
            return list(self._places)
        if self._is_changed:
            self._is_changed, self._best = False, self._make_best()
            for place in self._places:
                self._rank(place, self._results[place])
        found = set(self._best.kept())
        for place in reversed(self._places):
            if len(found) == self._size:
                break
            found.add(place)
        return sorted(found)

    def _make_best(self) -> Best:
        if len(self._signs) == 1:
            return Ranked(self._size // BEST_PART)
        return Front(self._size // FRONT_PART)

    def _rank(self, place: int, result: Result) -> None:
        values = zip(self._signs, result.values, strict=False)
        self._best.add(place, result.penalty, tuple(sign * value for sign, value in values))


class Best(Protocol):
    """Knows the best results."""

    def add(self, place: int, penalty: float, point: Point) -> None:
        """Take note of one: how far it is from the constraints, and its values, to be small."""
        ...

    def kept(self) -> list[int]:
        """Return the places of the best."""
        ...


class Ranked:
    """The best by one metric: first what satisfies the constraints, then what is nearer to it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ranked: list[tuple[float, Point, int]] = []

    def add(self, place: int, penalty: float, point: Point) -> None:
        """See `Best`. What is not among the best now will not be later."""
        insort(self._ranked, (penalty, point, place))
        del self._ranked[self._count :]

    def kept(self) -> list[int]:
        """See `Best`."""
        return [place for _, _, place in self._ranked]


class Front:
    """The Pareto front of those that satisfy the constraints, or else of those that are nearest to it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._least = float("inf")
        self._front: dict[int, Point] = {}
        self._new: dict[int, Point] = {}

    def add(self, place: int, penalty: float, point: Point) -> None:
        """See `Best`."""
        if penalty < self._least:
            self._least, self._front, self._new = penalty, {}, {}
        if penalty == self._least:
            self._new[place] = point

    def kept(self) -> list[int]:
        """See `Best`. Of a front that is too large, the ends and what is spread along its first metric."""
        self._settle()
        along = sorted(self._front, key=lambda place: (self._front[place], place))
        if len(along) <= self._count:
            return along
        last = len(along) - 1
        return [along[round(step * last / (self._count - 1))] for step in range(self._count)]

    def _settle(self) -> None:
        if self._new:
            places = sorted(self._front | self._new)
            points: Mapping[int, Point] = self._front | self._new
            front = find_front([points[place] for place in places])
            self._front = {places[at]: points[places[at]] for at in front}
            self._new = {}
