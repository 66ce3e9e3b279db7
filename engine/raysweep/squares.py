"""Means and sums of squares of whatever was reported: a loss that has exploded is a number, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from statistics import fmean, stdev


def sum_of_squares(values: Iterable[float]) -> float:
    """The sum of the squares; infinite where that is more than a float can hold, from about 1e154 on.

    Python raises OverflowError there, and what decides about trials must not fail by what one of them says.
    """
    try:
        return sum(value**2 for value in values)
    except OverflowError:
        return inf


def mean_of(values: Sequence[float]) -> float:
    """The mean, also of numbers whose sum is more than a float can hold."""
    try:
        return fmean(values)
    except OverflowError:
        return sum(value / len(values) for value in values)


def spread_of(values: Sequence[float]) -> float:
    """The standard deviation, of two numbers at least; infinite where that is more than a float can hold."""
    try:
        return stdev(values)
    except OverflowError:
        return inf
