"""The agreement of earlier runs with tonight: by configs that all of them ran, their anchors.

Of each earlier run that ran at least `LEAST_COMMON` of tonight's anchors, the pairs of scores, then and
now, say whether it still tells good from bad: by their rank correlation (Spearman), and by the share of
tonight's variance that a line through them explains (Theil and Sen: of medians, so that one odd anchor does
not tilt it). If both are high, that line takes its scores to tonight's level and scale. If not, nothing of
it is told: after a jump the past costs its anchors and nothing else. No earlier trial counts as better than
the best that ran again tonight: where the good ones have moved away, what is found tonight is ahead of
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from statistics import StatisticsError, correlation, fmean, median
from typing import Any, Final

from raysweep.documents.digest import digest_of
from raysweep.numeric.means import mean_of, sum_of_squares
from raysweep.search.base import Result

LEAST_COMMON: Final = 3
"""Of fewer anchors, the order says next to nothing."""
LEAST_AGREEMENT: Final = 0.8
"""Of five anchors in a random order, one in fifteen would have this rank correlation, or more."""
_OTHER_BEST: Final = 0.5
_STEEPEST: Final = 4.0
Pair = tuple[float, float]
"""A config's score in an earlier run, and tonight's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A trial of an earlier run: `run` is how many runs it is older than the newest one."""

    config: dict[str, Any]
    result: Result
    run: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """The part of the past that agreed, its anchors and runs, and the results that the search receives.

    `told`: what the search is told, corrected, the oldest first. `agreeing`: the agreement of each run that
    is told; `others`: of each that disagrees. Runs that have too few of the anchors are in neither.
    """

    anchors: int
    runs: int
    told: tuple[tuple[dict[str, Any], Result], ...]
    agreeing: tuple[float, ...]
    others: tuple[float, ...]

    def __str__(self) -> str:
        """One line for a person."""
        again, without = f"{self.anchors} anchors that ran again", "the search continues without them"
        if self.agreeing:
            how = f"(agreement {fmean(self.agreeing):.2f})"
            count = f"{len(self.agreeing)} of {self.runs} earlier runs agree with {again} {how}"
            return f"memory: {count}: {len(self.told)} of their trials count, corrected"
        if self.others:
            how = f"(agreement at most {max(self.others):.2f})"
            return f"memory: none of {self.runs} earlier runs agrees with {again} {how}: {without}"
        return f"memory: {self.runs} earlier runs cannot be compared by {again}: {without}"


def judge(
    entries: Sequence[Entry], scores: Mapping[str, float], half_life: float | None, *, is_max: bool
) -> Agreement:
    """Compare each earlier run with tonight's anchors, and correct what agrees.

    Args:
        entries: the trials of earlier runs.
        scores: tonight's scores of the anchors, by `key_of` their configs.
        half_life: after how many runs an earlier one counts half; None: all count the same.
        is_max: whether larger scores are better.
    """
    by_run: dict[int, list[Entry]] = {}
    for entry in entries:
        by_run.setdefault(entry.run, []).append(entry)
    told: list[tuple[dict[str, Any], Result]] = []
    agreeing, others = [], []
    for run, known in sorted(by_run.items(), reverse=True):
        pairs = _pairs(known, scores)
        if len(pairs) < LEAST_COMMON:
            continue
        found = agreement_of(pairs, is_max=is_max)
        if found < LEAST_AGREEMENT:
            others.append(found)
            continue
        agreeing.append(found)
        weight = 1.0 if half_life is None else 0.5 ** (run / half_life)
        told += _corrected([e for e in known if key_of(e.config) not in scores], pairs, weight)
    if told:
        told = [_no_better(each, scores.values(), is_max=is_max) for each in told]
    return Agreement(len(scores), len(by_run), tuple(told), tuple(agreeing), tuple(others))


def key_of(config: Mapping[str, Any]) -> str:
    """A key that is the same for equal configs."""
    return digest_of(dict(config))


def agreement_of(pairs: Sequence[Pair], *, is_max: bool) -> float:
    """The rank correlation, or the explained share of the variance, whichever is less; 1 at best.

    Where the best of then is not the best of now, no more than `_OTHER_BEST`: that the bad ones are bad still
    is no reason to search where the good ones were.
    """
    slope, intercept = line_through(pairs)
    middle = mean_of([now for _, now in pairs])
    total = sum_of_squares(now - middle for _, now in pairs)
    left = sum_of_squares(now - slope * was - intercept for was, now in pairs)
    explained = 1.0 - left / total if 0.0 < total < inf and left < inf else 0.0
    best = max if is_max else min
    limit = 1.0 if best(pairs)[1] == best(now for _, now in pairs) else _OTHER_BEST
    return min(rank_correlation(pairs), explained, limit)


def rank_correlation(pairs: Sequence[Pair]) -> float:
    """Spearman's: 1 where both have the same order, 0 where one has none."""
    was, now = (_ranks(values) for values in zip(*pairs, strict=True))
    try:
        return correlation(was, now)
    except StatisticsError:  # all are equal
        return 0.0


def line_through(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return slope and intercept of the line of Theil and Sen; the slope between 1/4 and 4."""
    slopes = [(d - b) / (c - a) for (a, b), (c, d) in combinations(pairs, 2) if a != c]
    slope = min(max(median(slopes or [1.0]), 1.0 / _STEEPEST), _STEEPEST)
    return slope, median(now - slope * was for was, now in pairs)


def _pairs(known: Iterable[Entry], scores: Mapping[str, float]) -> list[Pair]:
    was: dict[str, list[float]] = {}
    for entry in known:
        key = key_of(entry.config)
        if key in scores:
            was.setdefault(key, []).append(entry.result.value)
    return [(mean_of(values), scores[key]) for key, values in was.items()]


def _corrected(
    known: Sequence[Entry], pairs: Sequence[Pair], weight: float
) -> list[tuple[dict[str, Any], Result]]:
    """At tonight's level, and the nearer to the middle of their run the less they count."""
    slope, intercept = line_through(pairs)
    values = [slope * entry.result.value + intercept for entry in known]
    middle = median(values) if values else 0.0
    return [
        (entry.config, Result(middle + weight * (value - middle), entry.result.violations))
        for entry, value in zip(known, values, strict=True)
    ]


def _no_better(
    each: tuple[dict[str, Any], Result], scores: Collection[float], *, is_max: bool
) -> tuple[dict[str, Any], Result]:
    config, result = each
    value = min(result.value, max(scores)) if is_max else max(result.value, min(scores))
    return config, replace(result, value=value)


def _ranks(values: Sequence[float]) -> list[float]:
    """Each value's place in their order; equal ones share the middle of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
