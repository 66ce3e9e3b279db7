"""The level of scores over scales: a power law with a floor, `a + sum(b * scale**-exponent)`.

The floor and the factors are linear, so for a given exponent they follow in closed form; exponents, and how
far scales lie off the law, are weighed by how well they explain the levels. The prediction is the mixture.
Exponents are those of the field: 0 (a logarithm) to 1 (Hestness et al. 2017, arXiv 1712.00409).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist
from typing import Final

import numpy as np

from raysweep.transfer.surface import Array

EXPONENTS: Final = {0.02: 0.5, 0.1: 1.0, 0.2: 1.0, 0.35: 1.0, 0.6: 0.5}
"""Exponents and how likely each is before the trials are seen."""
MOST_FREE: Final = 3
"""Of more scales, all have the same exponent."""
SCATTERS: Final = (0.03, 0.06, 0.12, 0.25, 0.5)
"""The distances of a scale's level off the law, in units; each is as likely before the trials."""
FLAT_SD: Final = 1e3
"""The prior of the floor, in units: none."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Normal distributions with weights that sum to one."""

    means: Array
    sds: Array
    weights: Array

    @property
    def mean(self) -> float:
        """The mean of the mixture."""
        return float(self.weights @ self.means)

    def moved(self, by: float, variance: float) -> Mixture:
        """The mixture with an independent normal error added."""
        return Mixture(self.means + by, np.hypot(self.sds, math.sqrt(variance)), self.weights)

    def times(self, factor: float) -> Mixture:
        """The mixture in another unit."""
        return Mixture(self.means * factor, self.sds * factor, self.weights)

    def quantile(self, part: float) -> float:
        """Below which value a part of it lies."""
        low = float((self.means - 10 * self.sds).min())
        high = float((self.means + 10 * self.sds).max())
        for _ in range(60):
            middle = (low + high) / 2
            if self._below(middle) < part:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def _below(self, value: float) -> float:
        normal = NormalDist()
        pairs = zip(self.weights, self.means, self.sds, strict=True)
        return sum(float(weight) * normal.cdf((value - mean) / sd) for weight, mean, sd in pairs)


def predict_level(levels: Array, covariance: Array, logs: Array, target: Array) -> Mixture:
    """The level at a target.

    Args:
        levels: by scale, with their covariance.
        covariance: of the levels.
        logs: the logarithms of the scales, by scale and name.
        target: the logarithms of the target's scales.
    """
    found = [
        _given(levels, covariance, logs, target, exponents, scatter)
        for exponents in _grid(logs.shape[1])
        for scatter in SCATTERS
    ]
    means, variances, evidence = (np.array(each) for each in zip(*found, strict=True))
    weights = np.exp(evidence - evidence.max())
    return Mixture(means, np.sqrt(variances), weights / weights.sum())


def _given(
    levels: Array,
    covariance: Array,
    logs: Array,
    target: Array,
    exponents: Sequence[float],
    scatter: float,
) -> tuple[float, float, float]:
    """The mean and variance at the target, and the logarithm of the evidence, for given exponents."""
    centre = logs.mean(axis=0)
    known, wanted = _powers(logs - centre, exponents), _powers((target - centre)[None], exponents)[0]
    prior = np.diag([FLAT_SD**2, *[_slope(levels, logs) ** 2] * logs.shape[1]])
    noise = covariance + scatter**2 * np.eye(len(levels))
    total = known @ prior @ known.T + noise
    middle = levels.mean()
    gain = np.linalg.solve(total, known @ prior @ wanted)
    off = levels - middle
    mean = middle + float(gain @ off)
    variance = float(wanted @ prior @ wanted - gain @ known @ prior @ wanted) + scatter**2
    _, size = np.linalg.slogdet(total)
    evidence = -0.5 * (float(off @ np.linalg.solve(total, off)) + float(size))
    evidence += sum(math.log(EXPONENTS[each]) for each in exponents)
    return mean, max(variance, scatter**2), evidence


def _grid(scales: int) -> list[tuple[float, ...]]:
    """The exponents to weigh: all combinations, of many scales only equal ones."""
    if scales > MOST_FREE:
        return [(exponent,) * scales for exponent in EXPONENTS]
    return list(product(EXPONENTS, repeat=scales))


def _powers(logs: Array, exponents: Sequence[float]) -> Array:
    """A one, and of each scale its power."""
    bent = [
        -np.expm1(-exponent * column) / exponent for exponent, column in zip(exponents, logs.T, strict=True)
    ]
    return np.column_stack([np.ones(len(logs)), *bent])


def _slope(levels: Array, logs: Array) -> float:
    """The size of a slope: that of the levels over that of the scales."""
    span = float(np.sqrt(np.square(logs - logs.mean(axis=0)).sum(axis=1).mean()))
    return max(float(levels.std()) / max(span, 1e-9), 0.1)
