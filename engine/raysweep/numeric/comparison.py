"""The certainty of the gains of several candidates over one champion, where the best of them is taken.

Dunnett's comparison with a control (C. W. Dunnett, JASA 50, 1955): where no candidate is better than the
champion, in less than a tenth of all gates any gets a lower bound above 0, however many there are.

Scores are taken as config + seed + noise. Only seeds that gave both a score count. The noise is estimated
from all compared configs together, as a few seeds of one tell little; where the candidate's own differences
are noisier than that, from those, so that a restless config is not taken for a good one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from statistics import NormalDist, fmean
from typing import Final

LEVEL: Final = 0.095
"""The chance of finding a gain where there is none: a little less than 90 % confidence allows."""
MIN_SEEDS: Final = 2
"""The fewest seeds from which a spread is estimated."""
_STEPS: Final = 96
_ROUNDS: Final = 200
_PHI: Final = NormalDist().cdf

Scores = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Of one candidate over the champion; positive is better."""

    gain: float
    """The mean difference over the seeds that both have a score of."""
    seeds: int
    """The number of these seeds; 0 where the champion's scores by seed are not known."""
    error: float | None = None
    """The standard error; None without a test."""
    freedom: int | None = None
    """The degrees of freedom of the noise; None without a test seed by seed."""
    lower: float | None = None
    """The gain is above this with the confidence asked for; None without a test."""


def mean_gain(candidate: Scores, champion: Scores) -> Gain | None:
    """The mean difference over common seeds, without a test; None where there are none."""
    unit = _unit_of(candidate, champion)
    gains = _differences(_in(unit, candidate), _in(unit, champion))
    return _out_of(unit, Gain(gain=fmean(gains), seeds=len(gains))) if gains else None


def paired_gains(candidates: Sequence[Scores], champion: Scores) -> list[Gain | None]:
    """The gain of each candidate, tested seed by seed; None for fewer than `MIN_SEEDS` common seeds.

    Args:
        candidates: By candidate its scores by seed, larger is better; None where there is none.
        champion: The champion's, of the same seeds.
    """
    unit = _unit_of(champion, *candidates)
    candidates, champion = [_in(unit, scores) for scores in candidates], _in(unit, champion)
    found = [_differences(scores, champion) for scores in candidates]
    is_tested = [len(gains) >= MIN_SEEDS for gains in found]
    if not any(is_tested):
        return [None] * len(found)
    noise, freedom = _noise([*compress(candidates, is_tested), champion])
    factor = critical(sum(is_tested), freedom)
    return [
        _out_of(unit, _tested(gains, noise, factor, freedom)) if len(gains) >= MIN_SEEDS else None
        for gains in found
    ]


def unpaired_gain(candidate: Scores, mean: float, spread: float, n: int, of: int) -> Gain | None:
    """The gain over a champion of which only mean and spread over `n` seeds are known (Welch's test).

    Args:
        candidate: Its scores; larger is better.
        mean: The champion's.
        spread: The champion's standard deviation.
        n: Over how many seeds.
        of: How many candidates there are.

    Returns None where one of them has fewer than `MIN_SEEDS` scores.
    """
    scores = [score for score in candidate if score is not None]
    if min(len(scores), n) < MIN_SEEDS:
        return None
    unit = _unit_of(scores, (mean, spread))
    scores, mean, spread = [score / unit for score in scores], mean / unit, spread / unit
    gain = fmean(scores) - mean
    parts = [(_variance(scores) / len(scores), len(scores) - 1), (spread**2 / n, n - 1)]
    error = math.sqrt(sum(part for part, _ in parts))
    if error**4 == 0.0:
        return _out_of(unit, Gain(gain=gain, seeds=0, error=0.0, lower=gain))
    freedom = error**4 / sum(part**2 / free for part, free in parts)
    lower = gain - critical(of, max(1, int(freedom))) * error
    return _out_of(unit, Gain(gain=gain, seeds=0, error=error, lower=lower))


@lru_cache(maxsize=256)
def critical(count: int, freedom: int, level: float = LEVEL) -> float:
    """The standard errors by which the largest of `count` gains has to be above 0; for one, Student's t.

    Args:
        count: How many candidates are compared with the one champion, with as many seeds each.
        freedom: The degrees of freedom of the noise's estimate.
        level: How often it may be, where no candidate is better.
    """
    low, high = 0.0, 2.0
    while _level(high, count, freedom) > level:
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _level(middle, count, freedom) > level else (low, middle)
    return high


def _level(limit: float, count: int, freedom: int) -> float:
    """The chance that the largest gain is above `limit` standard errors where none is real.

    Given the estimate of the noise (s times the true one) and the champion's own luck z, the candidates are
    independent: the integral over both of the chance that all stay below.
    """
    width = 8 / math.sqrt(2 * freedom)
    total = below = 0.0
    for s, weight in _simpson(max(0.0, 1 - width), 1 + width):
        if s == 0.0 and freedom > 1:
            continue  # where the density is 0, and its logarithm is none
        density = weight * math.exp((freedom - 1) * math.log(s or 1.0) - freedom * (s * s - 1) / 2)
        total += density
        for z, part in _LUCK:
            below += density * part * _PHI(math.sqrt(2) * limit * s + z) ** count
    return 1 - below / total


def _simpson(low: float, high: float) -> list[tuple[float, float]]:
    width = (high - low) / _STEPS
    weights = [1.0, *(4.0 if step % 2 else 2.0 for step in range(1, _STEPS)), 1.0]
    return [(low + step * width, weight * width / 3) for step, weight in enumerate(weights)]


_LUCK: Final = [
    (z, weight * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)) for z, weight in _simpson(-6.0, 6.0)
]


def _tested(gains: Sequence[float], noise: float, factor: float, freedom: int) -> Gain:
    gain = fmean(gains)
    error = math.sqrt(max(2 * noise, _variance(gains)) / len(gains))
    lower = gain - factor * error
    return Gain(gain=gain, seeds=len(gains), error=error, freedom=freedom, lower=lower)


def _noise(rows: Sequence[Scores]) -> tuple[float, int]:
    """The variance that is left once each config has its level and each seed its own, and its freedom.

    Fitted by turns, which with all scores there takes one; a row or a seed with one score says nothing.
    """
    cells = [(i, j, score) for i, row in enumerate(rows) for j, score in enumerate(row) if score is not None]
    places, left = [cell[:2] for cell in cells], [cell[2] for cell in cells]
    freedom = len(cells) - len({i for i, _ in places}) - len({j for _, j in places}) + 1
    small = 1e-12 * max(map(abs, left))
    for _ in range(_ROUNDS):
        moved = 0.0
        for side in (0, 1):
            groups: dict[int, list[float]] = {}
            for place, value in zip(places, left, strict=True):
                groups.setdefault(place[side], []).append(value)
            levels = {index: fmean(values) for index, values in groups.items()}
            left = [value - levels[place[side]] for place, value in zip(places, left, strict=True)]
            moved = max(map(abs, levels.values()))
        if moved <= small:
            break
    return sum(value * value for value in left) / freedom, freedom


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _differences(candidate: Scores, champion: Scores) -> list[float]:
    pairs = zip(candidate, champion, strict=False)
    return [mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None]


def _unit_of(*rows: Scores) -> float:
    """The power of two in which no score is as large as 2, so that no square of one is too large a number."""
    largest = max((abs(score) for row in rows for score in row if score is not None), default=0.0)
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0.0 else 1.0


def _in(unit: float, scores: Scores) -> list[float | None]:
    return [None if score is None else score / unit for score in scores]


def _out_of(unit: float, found: Gain) -> Gain:
    error, lower = (None if each is None else each * unit for each in (found.error, found.lower))
    return replace(found, gain=found.gain * unit, error=error, lower=lower)
