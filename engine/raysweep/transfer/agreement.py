"""The agreement of a law: each scale is left out in turn, and the others predict its good configs.

`ranks`: a rank correlation over all scales, as a standard normal deviate, of all trials or of those that
did not diverge, whichever is larger; scores that were shuffled inside their scales pass `AGREE` at most twice
in a hundred draws. `law`, `copy`: the misfit of the scores that were left out,
as predicted by a law, and by one whose optimum does not move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from raysweep.transfer.surface import CAP, FLOOR, MISFIT, Array, Surface, fit_surface
from raysweep.transfer.table import Table

AGREE: Final = 2.33
"""From this deviate on, the ranks of configs agree between scales."""
WORSE: Final = 1.3
"""A law whose misfit is so many times that of copying does not carry, if it is no small one:"""
SMALL: Final = 0.5
"""Misfits of a trial below this are small."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The quality with which the scales predict each other."""

    ranks: float
    law: float
    copy: float
    trials: int

    @property
    def agrees(self) -> bool:
        """True if the ranks of configs agree between scales."""
        return self.ranks >= AGREE

    @property
    def is_worse(self) -> bool:
        """True if copying predicts the scales better than the law does."""
        return self.law > WORSE * self.copy + SMALL * self.trials


def agreement_of(table: Table, whole: Surface) -> Agreement:
    """The agreement of the scales of a table with each other; `whole`: the surface of all of them."""
    scales = sorted({cell.scale for cell in table.cells})
    of_cell = np.array([scales.index(cell.scale) for cell in table.cells])
    scale_of = of_cell[table.cell]
    found: list[tuple[Array, Array, Array]] = []
    for number in range(len(scales)):
        inside, outside = np.flatnonzero(scale_of == number), np.flatnonzero(scale_of != number)
        law = _predicted(table, fit_surface(table.design(outside), whole), inside)
        copy = _predicted(table, fit_surface(table.design(outside, moves=False), whole), inside)
        for cell in np.unique(table.cell[inside]):
            rows = table.cell[inside] == cell
            found.append((table.excess[inside][rows], law[rows], copy[rows]))
    ended = [(seen[np.isfinite(seen)], law[np.isfinite(seen)]) for seen, law, _ in found]
    return Agreement(
        ranks=max(_deviate([(seen, law) for seen, law, _ in found]), _deviate(ended)),
        law=sum(_misfit(law, seen) for seen, law, _ in found),
        copy=sum(_misfit(copy, seen) for seen, _, copy in found),
        trials=len(table.runs),
    )


def _deviate(pairs: Sequence[tuple[Array, Array]]) -> float:
    """Rank correlations inside the cells as one standard normal deviate."""
    large = [pair for pair in pairs if len(pair[0]) > 1]
    size = sum(len(seen) - 1 for seen, _ in large)
    found = sum((len(seen) - 1) * _rank_correlation(law, seen) for seen, law in large)
    return found / math.sqrt(size) if size else 0.0


def _predicted(table: Table, surface: Surface, rows: npt.NDArray[np.int64]) -> Array:
    """By trial, how bad a surface says it is, apart from the level of its cell."""
    design = table.design(rows)
    by_category = design.levels[:, len(table.cells) :] @ surface.levels[len(table.cells) :]
    found: Array = surface.excess(design.x, design.features) + by_category
    return found


def _rank_correlation(first: Array, second: Array) -> float:
    """Spearman's; equal values share their rank. 0 where all are equal."""
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0 else 0.0


def _ranks(values: Array) -> Array:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: Array = (ends - (counts - 1) / 2.0)[places]
    return found


def _misfit(predicted: Array, seen: Array) -> float:
    """The weighted squares of errors, at the level that suits best."""
    seen, predicted = np.minimum(seen, CAP), np.minimum(predicted, CAP)
    weights = 1.0 / np.square(np.hypot(FLOOR, MISFIT * seen))
    error = seen - predicted
    error = error - (weights @ error) / weights.sum()
    return float(weights @ np.square(error))
