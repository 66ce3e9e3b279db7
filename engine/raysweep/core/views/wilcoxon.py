"""Wilcoxon's signed-rank test (Wilcoxon, 1945): whether paired values are greater, more than by chance.

The p-values are those of `scipy.stats.wilcoxon(differences, alternative="greater", zero_method="zsplit")`,
without SciPy, which the core does not import: exact for up to 50 differences, with ties or zeros for up to
13; else by the normal distribution, corrected for ties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import erfc, sqrt
from typing import Final

MOST_EXACT: Final = 50
MOST_EXACT_TIED: Final = 13


def p_greater(differences: Sequence[float]) -> float:
    """The p-value of differences as great as these, in [0, 1]: small where they are above 0."""
    number = len(differences)
    ranks, ties = _doubled_ranks([abs(each) for each in differences])
    zeros = sum(rank for rank, each in zip(ranks, differences, strict=True) if each == 0)
    positive = sum(rank for rank, each in zip(ranks, differences, strict=True) if each > 0)
    # Of zeros, one half counts as above 0: all these are four times what the test's own sums are.
    statistic = 2 * positive + zeros
    has_ties = bool(zeros) or any(count > 1 for count in ties)
    if number <= (MOST_EXACT_TIED if has_ties else MOST_EXACT):
        others = sorted(rank for rank, each in zip(ranks, differences, strict=True) if each != 0)
        return _exact(tuple(others), positive)
    return _asymptotic(statistic / 4, number, ties)


def _doubled_ranks(values: Sequence[float]) -> tuple[list[int], tuple[int, ...]]:
    """Twice the rank of each value, so that the mean ranks of ties are whole; and how many share each."""
    counts = Counter(values)
    ordered = sorted(counts)
    ends = list(accumulate(counts[value] for value in ordered))
    doubled = {value: 2 * end - counts[value] + 1 for value, end in zip(ordered, ends, strict=True)}
    return [doubled[value] for value in values], tuple(counts[value] for value in ordered)


def _exact(ranks: tuple[int, ...], positive: int) -> float:
    at_least = _at_least(ranks)
    return at_least[positive] / at_least[0]


@lru_cache(maxsize=128)
def _at_least(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """For each sum, of how many subsets the ranks have at least that sum."""
    ways = [1]
    for rank in ranks:
        longer = [*ways, *[0] * rank]
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    return tuple(accumulate(reversed(ways)))[::-1]


def _asymptotic(statistic: float, number: int, ties: Sequence[int]) -> float:
    mean = number * (number + 1) / 4
    spread = number * (number + 1) * (2 * number + 1) - sum(each**3 - each for each in ties) / 2
    z = (statistic - mean) / sqrt(spread / 24)
    return erfc(z / sqrt(2)) / 2
