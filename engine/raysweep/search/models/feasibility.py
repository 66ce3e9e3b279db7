"""The chance that a config runs: least-squares classification by a Gaussian process.

The labels are +1 (the trial gave a result) and -1 (its config made it fail). A Gaussian process with a
squared-exponential kernel and a length scale for each coordinate is fitted to them (Rasmussen and Williams,
"Gaussian Processes for Machine Learning", 2006, section 6.5); a logistic function of its mean is the chance.
The length scales are those of a grid with the largest marginal likelihood, one coordinate after the other.

Everything is computed from the set of labels, in the order of their numbers: a search that is told again
after a restart gets the same chances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

Floats = npt.NDArray[np.float64]
Point = tuple[float, ...]
MOST: Final = 128
"""Of each label, so many of the newest are looked at: the cost of a fit is the cube of their number."""
SCALES: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 10.0)
"""The choices for each coordinate's length scale, in units of its range; at 10 it does not count."""
NOISE: Final = 0.1
"""The variance of a label around the process: near an edge the same config may run or fail."""
STEEP: Final = 3.0
"""A mean of 1 is a chance of 95 %, a mean of -1 one of 5 %."""


class Feasibility:
    """A fitted process.

    Args:
        points: Where trials were, each coordinate from 0 to 1; at least one, of equal length.
        labels: Of each, whether it gave a result.
    """

    def __init__(self, points: Sequence[Point], labels: Sequence[bool]) -> None:
        with threadpool_limits(
            1
        ):  # threads of BLAS would cost more than they save, and take it from the trials
            self._fit(points, labels)

    def _fit(self, points: Sequence[Point], labels: Sequence[bool]) -> None:
        self.points: Floats = np.array(points, dtype=np.float64)
        signs = np.where(np.array(labels), 1.0, -1.0)
        self.mean = float(signs.sum() / (len(signs) + 2.0))
        values = signs - self.mean
        apart = np.square(self.points[:, None, :] - self.points[None, :, :])
        self.scales = _scales(apart, values)
        kernel = _kernel(apart, self.scales)
        kernel[np.diag_indices_from(kernel)] += NOISE
        self.weights: Floats = np.linalg.solve(kernel, values).astype(np.float64)

    def chance(self, point: Point) -> float:
        """The chance that a config at this point runs, from 0 to 1."""
        away = (self.points - np.array(point)) / self.scales
        mean = self.mean + float(np.exp(-0.5 * np.square(away).sum(axis=1)) @ self.weights)
        return float(1.0 / (1.0 + np.exp(-STEEP * mean)))


def fit(labels: Mapping[int, tuple[Point, bool]]) -> Feasibility | None:
    """The process of these labels by number, or of the newest; None while no config has failed."""
    kept: list[int] = []
    for wanted in (True, False):
        numbers = sorted(number for number, (_, is_feasible) in labels.items() if is_feasible is wanted)
        kept += numbers[-MOST:]
    found = [labels[number] for number in sorted(kept)]
    if not found or not found[0][0] or all(is_feasible for _, is_feasible in found):
        return None
    return Feasibility([point for point, _ in found], [is_feasible for _, is_feasible in found])


def _scales(apart: Floats, values: Floats) -> Floats:
    dimensions = apart.shape[2]
    least = min(SCALES, key=lambda scale: _misfit(apart, np.full(dimensions, scale), values))
    scales = np.full(dimensions, least)
    for _ in range(2):
        for column in range(dimensions):
            scales[column] = min(
                SCALES, key=lambda scale: _misfit(apart, _with(scales, column, scale), values)
            )
    return scales


def _with(scales: Floats, column: int, scale: float) -> Floats:
    changed = scales.copy()
    changed[column] = scale
    return changed


def _kernel(apart: Floats, scales: Floats) -> Floats:
    kernel: Floats = np.exp(-0.5 * (apart @ (1.0 / np.square(scales))))
    return kernel


def _misfit(apart: Floats, scales: Floats, values: Floats) -> float:
    """The negative logarithm of the marginal likelihood, but for a constant."""
    kernel = _kernel(apart, scales)
    kernel[np.diag_indices_from(kernel)] += NOISE
    lower = np.linalg.cholesky(kernel)
    half = np.linalg.solve(lower, values)
    return float(0.5 * half @ half + np.log(np.diag(lower)).sum())
