"""A Gaussian process whose knowledge ages, and the configs that its upper confidence bound prefers.

Parker-Holder et al., "Provably Efficient Online Hyperparameter Optimization with Population-Based Bandits",
NeurIPS 2020, arXiv:2002.02518: the kernel, the bound and the scaling of `ray.tune.schedulers.pb2`. In plain
Python, so that each replay of a sweep gives the same configs, with no package and whatever their number
of threads: the kernel's parameters are those of a few that explain the data best, and the bound is compared
at drawn places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from operator import mul
from typing import Final

from raysweep.numeric.means import sum_of_squares

Row = Sequence[float]
"""A point: first its time, then all else that its result depends on."""

LENGTHS: Final = (0.05, 0.2, 0.8, 3.2)
EPSILONS: Final = (0.001, 0.1, 0.4)
NOISE: Final = 0.01
"""The error of each result, as a part of the variance: without, two results of one point fit no process."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """`variance * exp(-d²/length) * (1 - epsilon)^(dt/2)`, of points at distance d and times dt apart."""

    variance: float
    length: float
    epsilon: float
    noise: float = NOISE

    def between(self, one: Row, other: Row) -> float:
        """The covariance of two points, without noise."""
        square = sum((a - b) * (a - b) for a, b in zip(one[1:], other[1:], strict=True))
        ageing = log(1 - self.epsilon) * abs(one[0] - other[0]) / 2
        return self.variance * exp(ageing - square / self.length)


class Process:
    """A Gaussian process with zero mean, given points and their results.

    Args:
        kernel: its covariance.
        rows: the points.
        results: one for each.
    """

    __slots__ = ("_factor", "_rows", "_weights", "kernel")

    def __init__(self, kernel: Kernel, rows: Sequence[Row], results: Sequence[float]) -> None:
        self.kernel, self._rows = kernel, rows
        matrix = [[kernel.between(one, other) for other in rows[: i + 1]] for i, one in enumerate(rows)]
        for i in range(len(rows)):
            matrix[i][i] += kernel.variance * kernel.noise
        self._factor = _cholesky(matrix)
        self._weights = _forward(self._factor, results)

    @property
    def spread(self) -> float:
        """The mean square of what is left of the results without their covariance: 1 where that is right."""
        squares: float = sum(map(mul, self._weights, self._weights))
        return squares / len(self._weights)

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of the results, up to a constant."""
        determinant: float = sum(log(row[-1]) for row in self._factor)
        return -len(self._weights) * self.spread / 2 - determinant

    def with_pending(self, rows: Sequence[Row]) -> Process:
        """The same with points whose results are not there yet: it is as sure of these as it will be."""
        process = Process(self.kernel, [*self._rows, *rows], [0.0] * (len(self._rows) + len(rows)))
        # What is added to a factor below leaves the rows above as they are, and so the means.
        process._weights = self._weights
        return process

    def at(self, row: Row) -> tuple[float, float]:
        """Mean and variance of the result at a point, without noise."""
        found = _forward(self._factor, [self.kernel.between(row, each) for each in self._rows])
        mean = sum(map(mul, found, self._weights))
        return mean, max(self.kernel.variance - sum(map(mul, found, found)), 0.0)


def fit(rows: Sequence[Row], results: Sequence[float]) -> Process:
    """Of processes with the known lengths and epsilons, each with its best variance, the likeliest one."""
    found: list[tuple[float, Kernel]] = []
    for length in LENGTHS:
        for epsilon in EPSILONS:
            process = Process(Kernel(1.0, length, epsilon), rows, results)
            variance = max(process.spread, 1e-6)
            # As of a process with that variance, whose covariance is so many times as large.
            likelihood = process.log_likelihood + len(rows) * (process.spread - log(variance) - 1) / 2
            found.append((likelihood, Kernel(variance, length, epsilon)))
    return Process(max(found, key=lambda each: each[0])[1], rows, results)


def upper_bound(mean: float, variance: float, count: int) -> float:
    """The bound of a point's result, of a process of so many results (Ray's `UCB`)."""
    return mean + sqrt(0.2 + max(0.0, log(0.4 * count))) * variance


def standardised(results: Sequence[float]) -> list[float]:
    """Results with mean 0 and deviation 1, none further out than 2."""
    mean = sum(results) / len(results)
    deviation = sqrt(sum_of_squares(each - mean for each in results) / len(results))
    return [min(max((each - mean) / (deviation + 1e-8), -2.0), 2.0) for each in results]


def scaled(value: float, among: Sequence[float]) -> float:
    """A value as its place between the least and the largest of some."""
    return (value - min(among)) / (max(among) - min(among) + 1e-8)


def _cholesky(lower: list[list[float]]) -> list[list[float]]:
    """The lower factor of a symmetric matrix that is given by its lower half."""
    factor: list[list[float]] = []
    for i, given in enumerate(lower):
        row: list[float] = []
        for j in range(i):
            row.append((given[j] - sum(map(mul, row, factor[j]))) / factor[j][j])
        row.append(sqrt(max(given[i] - sum(map(mul, row, row)), 1e-12)))
        factor.append(row)
    return factor


def _forward(factor: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """The solution of `factor @ x = right`."""
    found: list[float] = []
    for row, value in zip(factor, right, strict=True):
        found.append((value - sum(map(mul, row, found))) / row[-1])
    return found
