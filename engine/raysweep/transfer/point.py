"""One target scale on a fitted surface: the optimum there, its interval, the config and its score."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from raysweep.space.branches import LeafPath
from raysweep.transfer.edges import improving
from raysweep.transfer.levels import Mixture, predict_level
from raysweep.transfer.parameters import Number
from raysweep.transfer.surface import Array, Surface
from raysweep.transfer.table import Cell, Table

PART: Final = 0.8
"""The part of the probability that an interval holds."""
SCORE_NOISE: Final = 0.1
"""The standard deviation of a full run's score, in units."""
MARGIN: Final = 0.05
"""An optimum this near to a bound, as a part of the range, is at the bound."""
MOST_ROUNDS: Final = 200


class Point:
    """A scale at which a law is asked.

    Args:
        table: the trials.
        surface: their surface.
        scale: in the order of the names.
    """

    def __init__(self, table: Table, surface: Surface, scale: Sequence[float]) -> None:
        self.scale = tuple(scale)
        self._table = table
        self._surface = surface
        self._parameters = table.parameters

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Of each category, the value with the best level over all scales."""
        levels = self._surface.levels[len(self._table.cells) :]
        found, start = [], 0
        for category in self._parameters.categories:
            found.append(int(np.argmin(levels[start : start + len(category.values)])))
            start += len(category.values)
        return tuple(found)

    @cached_property
    def _features(self) -> Array:
        return self._table.features(Cell(self.scale), self.places)

    @cached_property
    def chosen(self) -> Mapping[LeafPath, Any]:
        """The values of the categories, without those in branches that were not taken."""
        pairs = zip(self._parameters.categories, self.places, strict=True)
        values = {category.path: category.values[place] for category, place in pairs}
        return self._parameters.space.reached(values)

    @cached_property
    def reached(self) -> list[int]:
        """The places of the numbers that the config has."""
        space, numbers = self._parameters.space, self._parameters.numbers
        return [at for at, number in enumerate(numbers) if space.is_reached(number.path, self.chosen)]

    @property
    def numbers(self) -> list[tuple[int, Number]]:
        """The numbers that the config has, with their places."""
        return [(at, self._parameters.numbers[at]) for at in self.reached]

    @cached_property
    def optimum(self) -> Array:
        """The coordinates of the optimum, not held to any bounds."""
        return self._surface.optimum(self._features)

    @cached_property
    def sds(self) -> Array:
        """Their standard deviations."""
        return np.sqrt(np.diag(self._surface.optimum_covariance(self._features)))

    def outside(self, at: int) -> tuple[float, float]:
        """The probabilities that the optimum of a number is at or beyond its lower and its upper bound."""
        if not self._parameters.numbers[at].is_bounded:
            return 0.0, 0.0
        normal = NormalDist(float(self.optimum[at]), max(float(self.sds[at]), 1e-9))
        return normal.cdf(MARGIN), 1.0 - normal.cdf(1.0 - MARGIN)

    def improving(self, at: int, bound: float) -> float:
        """The probability that scores improve beyond a bound; 0 where the optimum moves away from it."""
        if not self._parameters.numbers[at].is_bounded:
            return 0.0
        centre = self._table.features(Cell(tuple(np.exp(self._table.centre).tolist())), self.places)
        middle = self._surface.optimum(centre)[at]
        moved = float(self.optimum[at] - middle)
        if (moved if bound == 0.0 else -moved) > MARGIN + float(self.sds[at]):
            return 0.0
        return improving(self._table, self._surface, at, bound)

    def matters(self, at: int) -> bool:
        """True if half the range of a number moves the score by more than an error."""
        return bool(self._surface.bowl[at, at] / 4 > self._surface.noise)

    @cached_property
    def inside(self) -> Array:
        """The best coordinates inside the space: the bowl's lowest point there, by one number at a time."""
        bowl, x = self._surface.bowl, self.optimum.copy()
        for _ in range(MOST_ROUNDS):
            before = x.copy()
            for at, number in self.numbers:
                pull = bowl[at] @ (x - self.optimum) - bowl[at, at] * (x[at] - self.optimum[at])
                x[at] = self.optimum[at] - pull / max(bowl[at, at], 1e-12)
                if number.is_bounded:
                    x[at] = min(max(x[at], 0.0), 1.0)
            if np.abs(x - before).max(initial=0.0) < 1e-6:
                break
        return x

    @property
    def intervals(self) -> dict[str, tuple[Any, Any]]:
        """By parameter, 80 % of the probability of the optimum, inside the space."""
        reach = NormalDist().inv_cdf((1 + PART) / 2)
        found = {}
        for at, number in self.numbers:
            ends = (self.inside[at] - reach * self.sds[at], self.inside[at] + reach * self.sds[at])
            held = [min(max(end, 0.0), 1.0) if number.is_bounded else end for end in ends]
            found[number.name] = (number.value(held[0]), number.value(held[1]))
        return found

    @property
    def bands(self) -> dict[str, tuple[float, float, float]]:
        """By parameter, the optimum and the ends of 80 % of its probability, not held to any bounds."""
        reach = NormalDist().inv_cdf((1 + PART) / 2)
        return {
            number.name: (
                number.raw(float(self.optimum[at])),
                number.raw(float(self.optimum[at] - reach * self.sds[at])),
                number.raw(float(self.optimum[at] + reach * self.sds[at])),
            )
            for at, number in self.numbers
        }

    @property
    def optima(self) -> dict[str, float]:
        """By parameter, the value of the optimum, not held to any bounds."""
        return {number.name: number.raw(float(self.optimum[at])) for at, number in self.numbers}

    @property
    def config(self) -> dict[str, Any]:
        """The config at the best coordinates inside the space."""
        values = dict(self.chosen) | {
            number.path: number.value(self.inside[at]) for at, number in self.numbers
        }
        space = self._parameters.space
        missing = [path for path in self._parameters.copied if space.is_reached(path, values)]
        return space.build(values | {path: self._copied(path) for path in missing})

    def _copied(self, path: LeafPath) -> Any:
        """The value of the best trial that has this parameter."""
        for run in sorted(self._table.runs, key=lambda run: (run.night, -run.size, run.score)):
            values = self._parameters.space.read(run.config)
            if path in values:
                return copy.deepcopy(values[path])
        raise AssertionError("its branch was taken by a trial")

    def score(self, x: Array, places: Sequence[int] | None = None) -> Mixture:
        """The score of a config with these coordinates at this scale, by tonight's levels; less is better.

        `places`: of its categories; default: the best.
        """
        table, surface = self._table, self._surface
        ended = [number for number, cell in enumerate(table.cells) if cell == Cell(cell.scale)]
        logs = np.log(np.array([table.cells[number].scale for number in ended]))
        levels = (table.best / table.unit + surface.levels[: len(table.cells)])[ended]
        covariance = surface.level_covariance[np.ix_(ended, ended)]
        mixture = predict_level(levels, covariance, logs, np.log(np.array(self.scale)))
        features = self._features if places is None else table.features(Cell(self.scale), places)
        by_category = (
            table.categories(self.places if places is None else places) @ surface.levels[len(table.cells) :]
        )
        spread = surface.bowl @ surface.optimum_covariance(features, allowed=False)
        worse = surface.excess(x[None], features[None])[0] + np.trace(spread)
        variance = 2.0 * np.trace(spread @ spread) + SCORE_NOISE**2
        return mixture.moved(float(worse + by_category), float(variance)).times(table.unit)
