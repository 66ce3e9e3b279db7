"""The likelihood ratio of Student's t: evidence that a mean is above 0, which may be looked at repeatedly.

For normal differences of unknown spread, the ratio of the noncentral to the central density of their t is an
e-value at each count of them: its expectation is at most 1 where the mean is 0, whenever one stops (the safe
t-test: P. Grünwald, R. de Heide, W. Koolen, JRSS B 86, 2024; M. F. Pérez-Ortiz, T. Lardy, R. de Heide,
P. Grünwald, Annals of Statistics 52, 2024).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import fmean
from typing import Final

EFFECT: Final = 0.8
"""The mean that a test bets on, in standard deviations of a difference of two scores."""
_STEPS: Final = 96
_REACH: Final = 8.0


@lru_cache(maxsize=1024)
def log_evidence(differences: tuple[float, ...], effect: float = EFFECT) -> float:
    """The logarithm of the e-value of these differences; 0 for fewer than two.

    Args:
        differences: Positive is better. Their unit does not matter.
        effect: See `EFFECT`.
    """
    count = len(differences)
    if count < 2:
        return 0.0
    unit = max(map(abs, differences)) or 1.0
    values = [each / unit for each in differences]
    mean = fmean(values)
    error = math.sqrt(sum((each - mean) ** 2 for each in values) / (count - 1) / count)
    return log_t_ratio(mean, error, count - 1, effect * math.sqrt(count))


def log_t_ratio(mean: float, error: float, freedom: int, shift: float) -> float:
    """The logarithm of the noncentral density of t = mean / error over the central one.

    Args:
        mean: The estimate.
        error: Its standard error.
        freedom: The degrees of freedom of the error, at least 1.
        shift: The noncentrality.

    With u = t / sqrt(freedom + t²) it is -shift²/2 + log E exp(shift u X), where X has a chi distribution
    with freedom + 1 degrees of freedom: an integral with one peak, no wider than that of a normal density.
    """
    size = math.hypot(math.sqrt(freedom) * error, mean)
    slope = shift * (mean / size if size > 0 else 0.0)
    peak = (slope + math.sqrt(slope * slope + 4 * freedom)) / 2
    low = max(0.0, peak - _REACH)
    width = (peak + _REACH - low) / _STEPS

    def log_density(x: float) -> float:
        return freedom * math.log(x) - x * x / 2 + slope * x if x > 0 else -math.inf

    top = log_density(peak)
    weights = [1.0, *(4.0 if step % 2 else 2.0 for step in range(1, _STEPS)), 1.0]
    total = sum(
        weight * math.exp(log_density(low + step * width) - top) for step, weight in enumerate(weights)
    )
    log_chi = (freedom - 1) / 2 * math.log(2) + math.lgamma((freedom + 1) / 2)
    return top + math.log(total * width / 3) - log_chi - shift * shift / 2
