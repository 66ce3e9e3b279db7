"""The surface of scores near the optimum: one quadratic for all scales, whose optimum and level move.

    score = level + sum((diag(exp(steepness)) @ shear @ (x - optimum))**2),  optimum = moves @ features

`x` are the parameters' coordinates, `features` a one, the logarithms of the scales and the categories. Levels
are free for each scale; the steepness and the shear of the bowl are shared. The most probable surface is
found by Gauss-Newton steps with priors: the optimum does not move unless the trials say so, by a power law
whose exponents are of the size of 0.5 (Yang et al. 2022, arXiv 2203.03466; Li et al. 2025, arXiv 2503.04715).

A real surface is a bowl only near its optimum. So the error that a score may have grows with its distance
from the best (`MISFIT`), errors have the tails of Student's t, and a score beyond `CAP` says only that its
config is at least as bad. The cost grows as trials times the square of the number of coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MISFIT: Final = 0.35
"""The standard deviation of an error, as a part of the distance from the best."""
FLOOR: Final = 0.2
"""The least standard deviation of an error, in units: no real surface is a bowl more exactly than that."""
CAP: Final = 6.0
"""From this distance from the best (in units) on, scores are only known to be bad."""
FREEDOM: Final = 4.0
"""Degrees of freedom of Student's t: outliers lose their weight."""
LEVEL_SD: Final = 3.0
"""The distance of a scale's level from its best trial, in units."""
STEEP_SD: Final = 1.0
"""Of the logarithm of the bowl's steepness around what the spread of the trials says."""
SHEAR_SD: Final = 0.5
"""The dependence of two parameters on each other."""
LEAST_ERRORS: Final = 0.1
"""Errors (squared, as a part of those allowed for) are not taken for smaller than this."""
MOST_STEPS: Final = 60
FIRST_STEPS: Final = 4
"""After these steps the noise is estimated."""
CLOSE: Final = 1e-3
"""A step below this is the last one; coordinates go from 0 to 1."""
LONGEST: Final = 0.7
"""The longest step of one coefficient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The data to which a surface is fitted.

    `x`: coordinates by trial and parameter, NaN where a config has not the parameter. `features`: by trial,
    what the optimum moves with; `moves_sd`: how far, by parameter and feature. `levels`: by trial, what the
    level is a sum of; `levels_sd`: their standard deviations. `excess`: how far each score is from the best
    of its scale, in units of the typical one; infinite where a trial diverged.
    """

    x: Array
    features: Array
    moves_sd: Array
    levels: Array
    levels_sd: Array
    excess: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """The most probable surface.

    `allowed`: the covariance of the coefficients, as wide as the errors that were allowed for: where the
    bowl is a bad picture, it is so at all scales, and the optimum is off. `covariance`: as wide as the errors
    in fact, which is what levels go by.

    `moves`: the optimum's coefficients, by parameter and feature. `root`: the matrix whose square is the
    bowl. `levels`: those of the design. `noise`: the standard deviation of an error at the optimum.
    """

    moves: Array
    root: Array
    levels: Array
    coefficients: Array
    allowed: Array
    covariance: Array
    noise: float

    def optimum(self, features: Array) -> Array:
        """The optimum, not held to any bounds."""
        found: Array = self.moves @ features
        return found

    def optimum_covariance(self, features: Array, *, allowed: bool = True) -> Array:
        """The covariance of the optimum, by the errors that were allowed for or by those in fact."""
        count, width = self.moves.shape
        gradient = np.kron(np.eye(count), features)
        whole = self.allowed if allowed else self.covariance
        block = whole[: count * width, : count * width]
        found: Array = gradient @ block @ gradient.T
        return found

    def excess(self, x: Array, features: Array) -> Array:
        """The loss of each row of coordinates against the optimum; a missing one counts as the best."""
        away = np.nan_to_num(x - features @ self.moves.T)
        found: Array = np.square(away @ self.root.T).sum(axis=1)
        return found

    @property
    def bowl(self) -> Array:
        """The matrix of the quadratic."""
        found: Array = self.root.T @ self.root
        return found

    @property
    def level_covariance(self) -> Array:
        """The covariance of the levels."""
        count = len(self.levels)
        return self.covariance[-count:, -count:] if count else np.zeros((0, 0))


class _Shape:
    """The places of coefficients in one vector: moves, steepness, shear, levels; and their priors."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.count, self.width = design.x.shape[1], design.features.shape[1]
        self.rows, self.columns = np.triu_indices(self.count, 1)
        self.moves = slice(0, self.count * self.width)
        self.steep = slice(self.moves.stop, self.moves.stop + self.count)
        self.shear = slice(self.steep.stop, self.steep.stop + len(self.rows))
        self.levels = slice(self.shear.stop, self.shear.stop + design.levels.shape[1])
        self.known = ~np.isnan(design.x)
        self.x = np.nan_to_num(design.x)
        self.seen = np.minimum(design.excess, CAP)
        self.is_only_bad = design.excess >= CAP
        self.mean, self.sd = np.zeros(self.levels.stop), np.empty(self.levels.stop)
        self._set_priors()

    def _set_priors(self) -> None:
        design = self.design
        near = self.known / np.square(FLOOR + np.minimum(design.excess, 50.0))[:, None]
        centre = (self.x * near).sum(axis=0) / np.maximum(near.sum(axis=0), 1e-12)
        away = np.square(self.x - centre) * self.known
        typical = away.sum(axis=0) / np.maximum(self.known.sum(axis=0), 1)
        self.mean[self.moves].reshape(self.count, self.width)[:, 0] = 0.5
        self.mean[self.steep] = -0.5 * np.log(np.maximum(typical, 1e-4) * max(self.count, 1))
        self.sd[self.moves] = design.moves_sd.ravel()
        self.sd[self.steep], self.sd[self.shear] = STEEP_SD, SHEAR_SD
        self.sd[self.levels] = design.levels_sd


class _Place:
    """The surface with one set of coefficients, beside the scores.

    `above`: by trial, how far its score is above the surface; 0 where it is only known to be bad, and the
    surface agrees.
    """

    def __init__(self, shape: _Shape, at: Array) -> None:
        self.shape = shape
        self.at = at
        self.away = (shape.x - shape.design.features @ self.optima.T) * shape.known
        self.bent = self.away @ self.root.T
        self.excess = np.square(self.bent).sum(axis=1)
        self.level = shape.design.levels @ at[shape.levels]
        above = shape.seen - self.excess - self.level
        self.above = np.where(shape.is_only_bad, np.maximum(above, 0.0), above)

    @property
    def optima(self) -> Array:
        """The coefficients of the optimum, by parameter and feature."""
        return self.at[self.shape.moves].reshape(self.shape.count, self.shape.width)

    @cached_property
    def root(self) -> Array:
        """The triangular matrix whose square is the bowl."""
        shear = np.eye(self.shape.count)
        shear[self.shape.rows, self.shape.columns] = self.at[self.shape.shear]
        found: Array = np.exp(self.at[self.shape.steep])[:, None] * shear
        return found

    def slopes(self) -> Array:
        """The derivatives of the score, by trial and coefficient."""
        shape, bent = self.shape, self.bent
        by_optimum = -2.0 * (bent @ self.root) * shape.known
        found = np.empty((len(bent), len(self.at)))
        moves = by_optimum[:, :, None] * shape.design.features[:, None, :]
        found[:, shape.moves] = moves.reshape(len(bent), -1)
        found[:, shape.steep] = 2.0 * np.square(bent)
        steep = np.exp(self.at[shape.steep])[shape.rows]
        found[:, shape.shear] = 2.0 * bent[:, shape.rows] * steep * self.away[:, shape.columns]
        found[:, shape.levels] = shape.design.levels
        return found

    def errors(self, noise: float) -> tuple[Array, Array]:
        """By trial, the standard deviation of its error, and its weight as no outlier."""
        distance = np.clip(np.maximum(self.excess, self.shape.seen - self.level), 0.0, CAP)
        spread = np.hypot(noise, MISFIT * distance)
        return spread, (FREEDOM + 1) / (FREEDOM + np.square(self.above / spread))

    def noise(self, noise: float) -> float:
        """Halfway to the most probable standard deviation of an error at the optimum."""
        spread, weights = self.errors(noise)
        part = np.square(noise / spread) * ~self.shape.is_only_bad
        found = (np.square(part) * weights * np.square(self.above)).sum() / max(part.sum(), 1.0)
        return (noise + float(np.clip(np.sqrt(found), FLOOR, 1.0))) / 2

    def cost(self, weights: Array) -> float:
        """The value that the most probable coefficients minimise."""
        off = (self.at - self.shape.mean) / self.shape.sd
        return float(weights @ np.square(self.above) + off @ off)


def fit_surface(design: Design, start: Surface | None = None) -> Surface:
    """The most probable surface of a design; `start`: one to begin at, of the same coefficients."""
    shape = _Shape(design)
    place = _Place(shape, shape.mean.copy() if start is None else start.coefficients.copy())
    noise, damping = FLOOR if start is None else start.noise, 1e-2
    for number in range(MOST_STEPS):
        spread, weights = place.errors(noise)
        last, (place, damping, curvature) = place, _step(place, weights / spread**2, damping)
        before, noise = noise, place.noise(noise) if number > FIRST_STEPS else noise
        moved = max(np.abs(place.at - last.at).max(), abs(noise - before))
        if number > FIRST_STEPS + 1 and moved < CLOSE:
            break
    return Surface(
        moves=place.optima,
        root=place.root,
        levels=place.at[shape.levels],
        coefficients=place.at,
        allowed=_inverse(curvature),
        covariance=_covariance(place, curvature, noise),
        noise=noise,
    )


def _covariance(place: _Place, curvature: Array, noise: float) -> Array:
    """Of the coefficients, by how large the errors are in fact, beside those that were allowed for."""
    spread, weights = place.errors(noise)
    counts = ~place.shape.is_only_bad
    prior = np.diag(place.shape.sd**-2.0)
    seen = curvature - prior
    free = max(counts.sum() - float(np.trace(np.linalg.solve(curvature, seen))), 1.0)
    errors = float((weights * np.square(place.above / spread))[counts].sum()) / free
    return _inverse(seen / float(np.clip(errors, LEAST_ERRORS, 1.0)) + prior)


def _inverse(matrix: Array) -> Array:
    found: Array = np.linalg.inv(matrix).astype(np.float64)
    return found


def _step(place: _Place, weights: Array, damping: float) -> tuple[_Place, float, Array]:
    """The next place, the damping of the next step (Levenberg, Marquardt), and the curvature."""
    shape, slopes = place.shape, place.slopes()
    weights = np.where(shape.is_only_bad & (place.above <= 0.0), 0.0, weights)
    curvature = (slopes * weights[:, None]).T @ slopes + np.diag(shape.sd**-2.0)
    uphill = slopes.T @ (weights * place.above) - (place.at - shape.mean) / shape.sd**2
    best = place.cost(weights)
    for _ in range(8):
        damped = curvature + damping * np.diag(np.diag(curvature))
        step = np.clip(np.linalg.solve(damped, uphill), -LONGEST, LONGEST)
        found = _Place(shape, place.at + step)
        if found.cost(weights) <= best + 1e-12:
            return found, max(damping / 3, 1e-6), curvature
        damping *= 4
    return place, damping, curvature
