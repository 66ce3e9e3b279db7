"""Means and sums of squares of reported numbers, with the same result on every version of Python.

`sum` of floats is compensated from Python 3.12 on and differs in the last bits. `fsum` and `fmean` round
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum, inf
from statistics import fmean, stdev


def sum_of_squares(values: Iterable[float]) -> float:
    """The sum of the squares; infinite where that is more than a float can hold, from about 1e154 on.

    Python raises OverflowError there, and what decides about trials must not fail by what one of them says.
    """
    try:
        return fsum(value**2 for value in values)
    except OverflowError:
        return inf


def mean_of(values: Sequence[float]) -> float:
    """The mean, also of numbers whose sum is more than a float can hold; NaN of both infinities."""
    try:
        return fmean(values)
    except (OverflowError, ValueError):
        return sum(value / len(values) for value in values)


def spread_of(values: Sequence[float]) -> float:
    """The standard deviation, of two numbers at least; infinite where that is more than a float can hold."""
    try:
        return stdev(values)
    except OverflowError:
        return inf
