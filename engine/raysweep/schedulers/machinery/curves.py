"""The end of a learning curve: y(t) = c + a t^-d, Bayesian in c and a, mixed over four decays d.

All that a curve leaves behind are sums, so that what is remembered of a trial does not grow with its reports,
and the prediction is closed. Values are losses here: the less the better. Plain Python, as verdicts that
follow from it are replayed (docs/design/search.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from raysweep.numeric.means import sum_of_squares

DECAYS: Final = (0.25, 0.5, 1.0, 2.0)
_NOISE: Final = 0.05
"""Of a report, in standard deviations of the trials' first values."""


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior of any curve: its asymptote c and its fall a, with standard deviations."""

    asymptote: float
    fall: float
    asymptote_sd: float
    fall_sd: float
    noise_sd: float


@dataclass(slots=True)
class Curve:
    """One trial's reports. `sums`: for each decay those of p = t^-d, of p^2 and of p y."""

    count: int = 0
    first: float = 0.0
    last: float = 0.0
    time: float = 0.0
    least: float = math.inf
    total: float = 0.0
    squares: float = 0.0
    sums: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0, 0.0] for _ in DECAYS])

    def add(self, time: float, value: float) -> None:
        """Take note of a loss at a time; of those that come again after a restart, nothing."""
        if time <= self.time:
            return
        self.first = value if not self.count else self.first
        self.count, self.last, self.time = self.count + 1, value, time
        self.least = min(self.least, value)
        self.total += value
        self.squares += value * value
        for decay, sums in zip(DECAYS, self.sums, strict=True):
            p = time**-decay
            sums[0] += p
            sums[1] += p * p
            sums[2] += p * value

    def predict(self, time: float, prior: Prior) -> tuple[float, float]:
        """Mean and standard deviation of the loss at a later time."""
        found = [self._at(time, decay, sums, prior) for decay, sums in zip(DECAYS, self.sums, strict=True)]
        top = max(evidence for _, _, evidence in found)
        weights = [math.exp(evidence - top) for _, _, evidence in found]
        whole = sum(weights)
        mean = sum(weight * each[0] for weight, each in zip(weights, found, strict=True)) / whole
        square = sum(
            weight * (each[1] + (each[0] - mean) ** 2) for weight, each in zip(weights, found, strict=True)
        )
        return mean, math.sqrt(square / whole)

    def _at(
        self, time: float, decay: float, sums: Sequence[float], prior: Prior
    ) -> tuple[float, float, float]:
        """By one decay: mean, variance, and the logarithm of how well it explains the reports."""
        noise, vc, va = prior.noise_sd**2, prior.asymptote_sd**2, prior.fall_sd**2
        p1, p2, py = sums
        aa, ab, bb = 1 / vc + self.count / noise, p1 / noise, 1 / va + p2 / noise
        u, w = prior.asymptote / vc + self.total / noise, prior.fall / va + py / noise
        det = aa * bb - ab * ab
        c, a = (bb * u - ab * w) / det, (aa * w - ab * u) / det
        p = time**-decay
        variance = (bb - 2 * p * ab + p * p * aa) / det
        fit = self.squares / noise + prior.asymptote**2 / vc + prior.fall**2 / va - (u * c + w * a)
        return c + a * p, max(variance, 0.0), -0.5 * (fit + math.log(det) + math.log(vc) + math.log(va))


def prior_of(firsts: Sequence[float], falls: Sequence[float]) -> Prior:
    """The prior of any other curve, from the curves so far.

    Args:
        firsts: the first values of trials.
        falls: by how much some have fallen since.
    """
    mean = sum(firsts) / max(1, len(firsts))
    spread = math.sqrt(sum_of_squares(each - mean for each in firsts) / max(1, len(firsts)))
    fall = sum(falls) / len(falls) if falls else 0.0
    scale = max(spread, abs(fall), 1e-9 * (1 + abs(mean)))
    return Prior(mean - fall, fall, 2 * scale, 2 * scale, _NOISE * scale)


def expected_gain(best: float, mean: float, sd: float) -> float:
    """The expected amount by which a value so distributed is below the best (expected improvement)."""
    if sd <= 0:
        return max(0.0, best - mean)
    z = (best - mean) / sd
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return max(0.0, (best - mean) * 0.5 * (1 + math.erf(z / math.sqrt(2))) + sd * density)
