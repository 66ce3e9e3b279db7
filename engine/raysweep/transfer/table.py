"""Trials as the numbers that a surface is fitted to: coordinates, logarithms of scales, distances.

A *cell* has the trials of one scale and one night that ran equally many steps: their scores are compared with
each other, those of two cells only through the surface. How far a trial came (`Run.progress`) is one scale
more, at which the target is 1. Nights share the bowl and how it moves with the scale: data that drift change
the level of a cell, and the optimum of a night by little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from raysweep.transfer.parameters import Parameters
from raysweep.transfer.surface import CAP, LEVEL_SD, Array, Design
from raysweep.transfer.trials import Run

EXPONENT_SD: Final = 0.5
"""The exponents of laws: an optimum moves with the scale to a power of this size."""
LINEAR_WIDTH: Final = 4.0
"""Of a parameter that is no logarithm: its range counts as so many e-folds."""
CENTRE_SD: Final = 0.5
"""The distance of an optimum from the middle of its range, in ranges."""
CATEGORY_SD: Final = 0.15
"""The distance that the optimum moves with a category, in ranges."""
CATEGORY_LEVEL_SD: Final = 2.0
"""The distance of a category's level from the mean of all, in units."""

DRIFT_SD: Final = 0.1
"""The distance of an earlier night's optimum from tonight's, in ranges, before the trials are seen."""

Places = tuple[int, ...]
"""Of each category, the place of the value; -1: the config has not this parameter."""


class Cell(NamedTuple):
    """The cell of trials whose scores are compared."""

    scale: tuple[float, ...]
    progress: float = 1.0
    night: int = 0


@dataclass(frozen=True)
class Table:
    """The trials of a law as arrays; all by trial but `best`, which is by cell.

    `unit`: the typical distance of a score from the best of its cell. `cells`: by number of the cell.
    `nights`: the earlier ones; `drift_sd`: how far their optima may be from tonight's.
    """

    parameters: Parameters
    runs: Sequence[Run]
    x: Array
    places: npt.NDArray[np.int64]
    cell: npt.NDArray[np.int64]
    cells: tuple[Cell, ...]
    best: Array
    unit: float
    excess: Array
    centre: Array = field(repr=False)
    has_progress: bool = False
    nights: tuple[int, ...] = ()
    drift_sd: float = DRIFT_SD

    def features(self, cell: Cell, places: Sequence[int]) -> Array:
        """The features with which the optimum moves."""
        logs = np.log(np.asarray(cell.scale)) - self.centre
        steps = [math.log(cell.progress)] if self.has_progress else []
        nights = [float(night == cell.night) for night in self.nights]
        return np.concatenate([[1.0], logs, steps, nights, self.categories(places)])

    def categories(self, places: Sequence[int]) -> Array:
        """The categories as zeros and ones, from which their mean is taken."""
        counts = [len(category.values) for category in self.parameters.categories]
        found = np.zeros(sum(counts))
        for start, count, place in zip(accumulate([0, *counts]), counts, places, strict=False):
            if place >= 0:
                found[start : start + count] = -1.0 / count
                found[start + place] += 1.0
        return found

    def design(self, rows: npt.NDArray[np.int64] | None = None, *, moves: bool = True) -> Design:
        """The data of these trials for fitting a surface (default: all); without `moves`, it stays."""
        chosen = slice(None) if rows is None else rows
        features, levels, levels_sd = self._columns
        return Design(
            x=self.x[chosen],
            features=features[chosen],
            moves_sd=self._moves_sd() if moves else self._still_sd(),
            levels=levels[chosen],
            levels_sd=levels_sd,
            excess=self.excess[chosen],
        )

    @cached_property
    def _columns(self) -> tuple[Array, Array, Array]:
        """By trial, what the optimum moves with and what the level is a sum of; how far the levels go."""
        by_cell = np.array([self.features(cell, ()) for cell in self.cells])
        count = by_cell.shape[1] - len(self.categories(()))
        by_category = np.array([self.categories(places) for places in self.places])
        features = np.column_stack([by_cell[self.cell, :count], by_category])
        levels = np.column_stack([np.eye(len(self.cells))[self.cell], by_category])
        sds = [np.full(len(self.cells), LEVEL_SD), np.full(by_category.shape[1], CATEGORY_LEVEL_SD)]
        return features, levels, np.concatenate(sds)

    def _moves_sd(self) -> Array:
        numbers, scales = self.parameters.numbers, len(self.centre) + self.has_progress
        widths = np.array([number.width if number.is_log else LINEAR_WIDTH for number in numbers])
        by_scale = np.repeat(EXPONENT_SD / np.maximum(widths, 1e-9)[:, None], scales, axis=1)
        by_night = np.full((len(numbers), len(self.nights)), self.drift_sd)
        by_category = np.full((len(numbers), len(self.categories(()))), CATEGORY_SD)
        return np.hstack([np.full((len(numbers), 1), CENTRE_SD), by_scale, by_night, by_category])

    @property
    def drifts(self) -> slice:
        """The places of the features that are nights."""
        first = 1 + len(self.centre) + self.has_progress
        return slice(first, first + len(self.nights))

    def _still_sd(self) -> Array:
        found = self._moves_sd()
        found[:, 1 : 1 + len(self.centre)] = 1e-6
        return found


def table_of(runs: Sequence[Run], parameters: Parameters) -> Table:
    """The trials as arrays. Raises SpecError: a config does not fit the space."""
    read = [
        coordinates_of(run.config, parameters, f"trials[{number}].config") for number, run in enumerate(runs)
    ]
    cells = sorted({_cell_of(run) for run in runs if run.has_score})
    numbers = {cell: number for number, cell in enumerate(cells)}
    kept = [number for number, run in enumerate(runs) if _cell_of(run) in numbers]
    chosen = [runs[number] for number in kept]
    cell = np.array([numbers[_cell_of(run)] for run in chosen], dtype=np.int64)
    scores = np.array([run.score for run in chosen])
    best = np.full(len(cells), np.inf)
    np.minimum.at(best, cell, scores)
    excess = scores - best[cell]
    unit = _unit(excess, cell)
    return Table(
        parameters=parameters,
        runs=chosen,
        x=np.array([read[number][0] for number in kept]).reshape(len(kept), len(parameters.numbers)),
        places=np.array([read[number][1] for number in kept], dtype=np.int64).reshape(len(kept), -1),
        cell=cell,
        cells=tuple(cells),
        best=best,
        unit=unit,
        excess=excess / unit,
        centre=np.log(np.array(sorted({cell.scale for cell in cells}))).mean(axis=0),
        has_progress=any(cell.progress < 1.0 for cell in cells),
        nights=tuple(sorted({cell.night for cell in cells if cell.night})),
    )


def _cell_of(run: Run) -> Cell:
    return Cell(run.scale, run.progress, run.night)


def coordinates_of(
    config: Mapping[str, Any], parameters: Parameters, field: str
) -> tuple[list[float], Places]:
    """The coordinates of a config's numbers, and the places of its categories. Raises SpecError."""
    values = parameters.read(config, field)
    coordinates = [
        each.coordinate(values[each.path], f"{field}.{each.name}") if each.path in values else math.nan
        for each in parameters.numbers
    ]
    places = (
        each.place(values[each.path], f"{field}.{each.name}") if each.path in values else -1
        for each in parameters.categories
    )
    return coordinates, tuple(places)


def _unit(excess: Array, cell: npt.NDArray[np.int64]) -> float:
    """The median distance of a trial from the best of its cell, of cells with three trials or more.

    By trial and not by cell: the few survivors of a scheduler are all near their best, and would shrink it.
    """
    is_known = np.isfinite(excess)
    is_large = np.bincount(cell[is_known], minlength=cell.max(initial=0) + 1)[cell] >= 3
    known = excess[is_known & is_large]
    found = float(np.median(known)) if len(known) else 0.0
    positive = excess[is_known & (excess > 0)]
    if found <= 0 and len(positive):
        found = float(np.median(positive))
    return found if found > 0 else 1.0


def is_useful(table: Table) -> npt.NDArray[np.bool_]:
    """The trials that are near enough to the best of their cell to say where the optimum is."""
    found: npt.NDArray[np.bool_] = table.excess < CAP
    return found
