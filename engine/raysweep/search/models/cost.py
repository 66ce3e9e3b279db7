"""The predicted cost of a config's trial: its logarithm, as a sum of a part for each parameter.

Costs multiply: twice the layers and half the batch take four times as long. So their logarithm is a sum, and
a sum is told from few trials, also far away from them (Lee et al., "Cost-aware Bayesian Optimization", 2020).
Of a number, its distance from the middle of its range and the square of that count, on a logarithmic scale
where it is positive; of a choice, each value. Ridge regression finds the coefficients. Leaving out one trial
after the other says how far they are to be trusted: where the others do not tell its cost better than their
mean does, every config costs the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from raysweep.search.models.optuna_params import Param

LEAST: Final = 5
"""Of fewer costs nothing is told."""
FIRST: Final = 10
"""The number of first trials that show how much costs differ: later ones were chosen by costs."""
MOST: Final = 1000
"""Of more costs, these many of the last trials are looked at."""
PENALTIES: Final = (0.01, 0.1, 1.0, 10.0, 100.0)
"""The choices for the penalty: the one that predicts best is taken."""
Log = Callable[[Any], Any]
"""`numpy.log` for arrays, `torch.log` for tensors."""
Matrix = npt.NDArray[np.float64]
Column = Callable[[Any, Log], tuple[Any, ...]]
"""From Optuna's numbers for a parameter, or the indices of a choice, to what its cost is a sum of."""


class CostModel:
    """The costs of trials, and what they tell of other configs.

    Args:
        params: the parameters that are modelled.
    """

    def __init__(self, params: Sequence[Param]) -> None:
        self._columns = {param.name: columns_of(param) for param in params}
        self._known: dict[int, tuple[Mapping[str, Any], float]] = {}
        self._found: LogCost | None = None
        self._is_new = False

    def add(self, number: int, params: Mapping[str, Any], cost: float | None) -> None:
        """Take note of what a trial cost, in place of what was known; nothing, if it is not positive."""
        if self._known.pop(number, None) is not None:
            self._is_new = True
        if cost is not None and 0.0 < cost < math.inf:
            self._known[number] = params, math.log(cost)
            self._is_new = True

    @property
    def spread(self) -> float:
        """The mean cost of the first trials as a multiple of that of the cheap ones among them; 1 or more."""
        first = sorted(math.exp(self._known[number][1]) for number in sorted(self._known)[:FIRST])
        if len(first) < LEAST:
            return 1.0
        cheap = first[: max(1, len(first) // 4)]
        return fmean(first) / fmean(cheap)

    def now(self) -> LogCost | None:
        """The model of the costs so far; None: there is none."""
        if self._is_new:
            self._is_new, self._found = False, self._fit()
        return self._found

    def _fit(self) -> LogCost | None:
        if len(self._known) < LEAST or not self._columns:
            return None
        # By number, as sums of floats depend on their order, and after a resume results come in another one.
        last = [self._known[number] for number in sorted(self._known)[-MOST:]]
        costs = np.array([cost for _, cost in last])
        blocks = [
            np.stack(columns(np.array([float(params[name]) for params, _ in last]), np.log), axis=-1)
            for name, columns in self._columns.items()
        ]
        matrix = np.hstack(blocks)
        weights = iter(ridge(matrix - matrix.mean(axis=0), costs - costs.mean()))
        sizes = {name: block.shape[1] for name, block in zip(self._columns, blocks, strict=True)}
        return LogCost(self._columns, {name: tuple(islice(weights, size)) for name, size in sizes.items()})


class LogCost:
    """The logarithm of the cost, but for a constant.

    Args:
        columns: see `columns_of`, by parameter.
        weights: what each of them adds.
    """

    def __init__(self, columns: Mapping[str, Column], weights: Mapping[str, Sequence[float]]) -> None:
        self._columns, self._weights = columns, weights

    def at(self, params: Mapping[str, Any], log: Log) -> Any:
        """The sum for these parameters, in arrays or tensors of one shape."""
        total: Any = 0.0
        for name, raw in params.items():
            for column, weight in zip(self._columns[name](raw, log), self._weights[name], strict=True):
                total = total + weight * column
        return total


def columns_of(param: Param) -> Column:
    """Return what makes columns of a parameter: of a number two, of a choice one for each value."""
    distribution = param.distribution
    if isinstance(distribution, CategoricalDistribution):
        count = len(distribution.choices)
        return lambda raw, _: tuple((raw == index) * 1.0 for index in range(count))
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = float(distribution.low), float(distribution.high)
    first, last = float(param.to_value(distribution.low)), float(param.to_value(distribution.high))

    def places(raw: Any, log: Log) -> tuple[Any, ...]:
        place = (raw - low) / (high - low)
        if first > 0.0:
            # A sampler may look half a step below the first.
            place = log((1.0 + place * (last / first - 1.0)).clip(min=0.5)) / math.log(last / first)
        away = 2.0 * place - 1.0  # from the middle, as its square has little to do with that
        return away, away * away

    return places


def ridge(matrix: Matrix, values: Matrix) -> list[float]:
    """Return coefficients of the columns, by the penalty whose rest is least where each row is left out.

    Zeros, where that is not less than the rest without any column.

    Args:
        matrix: rows by columns, each around its mean.
        values: one for each row, around their mean.
    """
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    parts, rows = left.T @ values, len(values)
    least, found = _left_out(values, np.zeros(rows)), np.zeros(matrix.shape[1])
    for penalty in PENALTIES:
        shrunk = singular**2 / (singular**2 + penalty)
        rest = _left_out(values - left @ (shrunk * parts), left**2 @ shrunk)
        if rest < least:
            least, found = rest, right.T @ (singular / (singular**2 + penalty) * parts)
    return [float(each) for each in found]


def _left_out(rests: Matrix, leverage: Matrix) -> float:
    """The sum of squares that is left where each row is told by the others only, as is their mean."""
    own = np.minimum(leverage + 1.0 / len(rests), 1.0 - 1e-9)
    return float((rests**2 / (1.0 - own) ** 2).sum())
