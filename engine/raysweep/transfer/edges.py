"""Scores that still improve at a bound of the space: an optimum beyond it, seen without the bowl's shape.

A bowl that is fitted to one flank of a real surface places its optimum inside. So each number has its own
curve: the scores, less what the bowl says of the other numbers, by the distance from the bound. Its slope at
the bound has almost no prior, its curvature has `BEND_SD`. The cost is linear in trials.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

import numpy as np

from raysweep.transfer.surface import CAP, MISFIT, Array, Surface
from raysweep.transfer.table import Table, is_useful

BEND_SD: Final = 1.0
"""Of the curvature, in units by squared range."""
FREE: Final = 1e-4
"""The prior's weight of a slope: next to none."""


def improving(table: Table, surface: Surface, at: int, bound: float) -> float:
    """The probability that scores improve beyond a bound (0 or 1) of the number with this place."""
    design = table.design()
    rows = is_useful(table) & ~np.isnan(design.x[:, at])
    away = np.abs(design.x[rows, at] - bound)
    if len(np.unique(away)) < 2:
        return 0.0
    held = design.x[rows].copy()
    held[:, at] = bound
    known = design.levels[rows] @ surface.levels + surface.excess(held, design.features[rows])
    spread = np.hypot(surface.noise, MISFIT * np.clip(table.excess[rows], 0.0, CAP))
    return _rises(away, table.excess[rows] - known, spread)


def _rises(away: Array, worse: Array, spread: Array) -> float:
    """The probability that a curve rises where `away` is 0."""
    terms = np.column_stack([np.ones(len(away)), away, np.square(away)]) / spread[:, None]
    covariance = np.linalg.inv(terms.T @ terms + np.diag([FREE, FREE, BEND_SD**-2]))
    slope = float((covariance @ (terms.T @ (worse / spread)))[1])
    return NormalDist().cdf(slope / float(np.sqrt(covariance[1, 1])))
