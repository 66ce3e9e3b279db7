"""Failed trials teach a model: where configs fail, fewer are asked for.

Two things happen once a config has made its trial fail. The model is told a result as bad as the worst so
far, so that it goes elsewhere by itself; and what it suggests is drawn anew while it is likely to fail, by a
model of failures over the coordinates of all leaves (`search.models.feasibility`). Before the first such
failure nothing differs from a search that knows of none.

What is told depends on the set of results alone, and is settled before each ask: a search that is told again
after a restart, by number, continues as the one that was lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from raysweep.search.base import Result
from raysweep.search.machinery.cells import Leaf, LeafPath, codec
from raysweep.space.domains import Choice, Domain, Float, Integer, Normal
from raysweep.space.parsed import Space
from raysweep.space.simplex import Simplex
from raysweep.space.units import is_open, to_unit

if TYPE_CHECKING:
    from raysweep.search.models.feasibility import Feasibility, Point

REDRAWS: Final = 6
"""The redraws of a config that is likely to fail; then the likeliest to run is taken."""
ENOUGH: Final = 0.75
"""A config that runs with this chance is worth a trial."""
Draw = Callable[[int], dict[LeafPath, Any]]
Coordinates = Callable[[Any], tuple[float, ...]]


class Told(Protocol):
    """The part of a model that is used here (`model.Model`)."""

    def end(self, number: int, result: Result | None) -> None: ...


@runtime_checkable
class FailureModel(Protocol):
    """A model that makes something of its own of trials that failed by their config."""

    def end_infeasible(self, number: int, worst: Result) -> None:
        """Take note of one, in place of `end`. Called again, when `worst` has changed.

        Until a trial has given a result, those that failed count as running.

        Args:
            number: The trial's.
            worst: A result as bad as the worst so far.
        """
        ...


@runtime_checkable
class AvoidingModel(Protocol):
    """A model that looks at failures itself when it chooses."""

    def avoids(self, number: int) -> bool:
        """True if its sample for this trial is chosen with regard to failures: then nothing is drawn anew."""
        ...


def end_infeasible(model: Told, number: int, worst: Result) -> None:
    """Tell a model of a trial that failed by its config."""
    if isinstance(model, FailureModel):
        model.end_infeasible(number, worst)
    else:
        model.end(number, worst)


def avoids(model: object, number: int) -> bool:
    """True if a model looks at failures itself for this trial."""
    return isinstance(model, AvoidingModel) and model.avoids(number)


class Failures:
    """The trials that failed by their config, and the chance that others do.

    Args:
        space: The parsed search space.
        model: The model that is told.
        modes: "min" or "max" for each metric.
    """

    def __init__(self, space: Space, model: Told, modes: Sequence[str]) -> None:
        self._space, self._model, self._modes = space, model, modes
        self._columns: dict[LeafPath, Coordinates] | None = None
        self._widths: dict[LeafPath, int] = {}
        self._values: dict[int, Mapping[LeafPath, Any]] = {}
        self._results: dict[int, Result] = {}
        self._infeasible: set[int] = set()
        self._untold: set[int] = set()
        self._worst: Result | None = None
        self._points: dict[int, Point] = {}
        self._feasibility: Feasibility | None = None
        self._is_new = False

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Take note of a trial that runs with these values."""
        self._values[number] = values

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Take note of a result of an earlier sweep."""
        number = -1 - sum(each < 0 for each in self._values)
        self._values[number] = values
        self.note(number, result)

    def note(self, number: int, result: Result | None) -> None:
        """Take note of how a trial ended, that did not fail by its config; None: it has no result."""
        self._results.pop(number, None)
        if result is not None:
            self._results[number] = result
        self._is_new = True

    def fail(self, number: int) -> None:
        """Take note of a trial that failed by its config."""
        self._results.pop(number, None)
        self._infeasible.add(number)
        self._untold.add(number)
        self._is_new = True

    def settle(self) -> None:
        """Tell the model of what failed, if there is anything new. Call it before each ask."""
        if not self._infeasible or not self._is_new:
            return
        self._is_new = False
        self._feasibility = self._fit()
        worst = self._find_worst()
        if worst is None:
            return
        for number in sorted(self._untold if worst == self._worst else self._infeasible):
            end_infeasible(self._model, number, worst)
        self._worst, self._untold = worst, set()

    def choose(self, number: int, draw: Draw) -> dict[LeafPath, Any]:
        """The values of `draw(0)`; where these are likely to fail, those of `draw(1)`, `draw(2)`, …"""
        values = draw(0)
        found = self._feasibility
        if found is None or avoids(self._model, number):
            return values
        chance = found.chance(self._point(values))
        for redraw in range(1, REDRAWS + 1):
            if chance >= ENOUGH:
                break
            other = draw(redraw)
            likelier = found.chance(self._point(other))
            if likelier > chance:
                values, chance = other, likelier
        return values

    def _find_worst(self) -> Result | None:
        """A result as bad as the worst in each metric, and as far from the constraints."""
        finite = [each for each in self._results.values() if all(map(math.isfinite, each.values))]
        results = finite or list(self._results.values())
        if not results:
            return None
        columns = zip(*(each.values for each in results), strict=False)
        values = [
            min(column) if mode == "max" else max(column)
            for column, mode in zip(columns, self._modes, strict=False)
        ]
        violations = zip(*(each.violations for each in results), strict=False)
        return Result(values[0], tuple(map(max, violations)), tuple(values[1:]))

    def _fit(self) -> Feasibility | None:
        from raysweep.search.models.feasibility import fit

        labels = dict.fromkeys(self._results, True) | dict.fromkeys(self._infeasible, False)
        return fit({number: (self._point_of(number), label) for number, label in labels.items()})

    def _point_of(self, number: int) -> Point:
        if number not in self._points:
            self._points[number] = self._point(self._values[number])
        return self._points[number]

    def _point(self, values: Mapping[LeafPath, Any]) -> Point:
        if self._columns is None:
            self._columns = columns_of(self._space.searched)
        return tuple(
            coordinate
            for path, coordinates in self._columns.items()
            for coordinate in coordinates(values.get(path) if self._space.is_reached(path, values) else None)
        )


def columns_of(leaves: tuple[Leaf, ...]) -> dict[LeafPath, Coordinates]:
    """Return what makes coordinates of a leaf's value, None where a config does not have it.

    A number has its place in its range, from 0 to 1, and so have the values of a choice between numbers by
    their order; any other choice has a coordinate for each value. Where the leaf is not there, a number is in
    the middle, and no value of a choice is taken.
    """
    found = {path: _coordinates(domain) for path, domain in leaves}
    return {path: each for path, each in found.items() if each is not None}


def _coordinates(domain: Domain) -> Coordinates | None:
    if isinstance(domain, Normal):
        normal = NormalDist(domain.mean, domain.sd) if domain.sd > 0.0 else None
        return None if normal is None else lambda value: (0.5 if value is None else normal.cdf(value),)
    if isinstance(domain, Choice):
        return _of_choice(domain)
    if isinstance(domain, Simplex):
        middle = domain.places(domain.from_places([0.5] * (len(domain.parts) - 1)))
        return lambda value: tuple(middle if value is None else domain.places(value))
    if isinstance(domain, Float | Integer) and is_open(domain):
        return lambda value: (0.5 if value is None else to_unit(domain, value),)
    return None


def _of_choice(domain: Choice) -> Coordinates | None:
    numbering = codec(domain)
    if numbering is None or numbering.size is None:
        return None
    values = [numbering.value(index) for index in range(numbering.size)]
    if len(values) == 1:
        return None
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        ranks = {index: rank for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__))}
        last = len(values) - 1
        return lambda value: (0.5 if value is None else ranks[numbering.index(value)] / last,)
    places = range(len(values))
    return lambda value: tuple(
        float(value is not None and place == numbering.index(value)) for place in places
    )
