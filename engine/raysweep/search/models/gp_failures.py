"""The chance that a config runs, as a factor of a Gaussian process's acquisition function.

Expected improvement counts only where a config runs: it is multiplied by the chance of that (Gelbart, Snoek
and Adams, "Bayesian Optimization with Unknown Constraints", UAI 2014). The chance is that of `feasibility`,
over the coordinates that Optuna's sampler searches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from raysweep.search.models.feasibility import STEEP, Feasibility, Point, fit
from raysweep.search.models.optuna_params import Param

ENOUGH: Final = 0.9
"""If the best is at the edge of what runs, nearly every ask is for a place with about this chance."""
WALL: Final = 100.0
"""The slope of the logarithm below that: an improvement that a process promises far away is often a
thousandfold, and where nothing runs no result ever corrects it."""


class ParamFailures:
    """The trials that failed by their config, and the chance that others run.

    Args:
        params: The parameters that are modelled.
    """

    def __init__(self, params: Sequence[Param]) -> None:
        self._distributions = {param.name: param.distribution for param in params}
        self._labels: dict[int, tuple[Point, bool]] = {}
        self._has_failed = False
        self._found: LogChance | None = None
        self._is_new = False

    def add(self, number: int, params: Mapping[str, Any], *, is_feasible: bool) -> None:
        """Take note of a trial: whether its config ran."""
        self._labels[number] = self._point(params), is_feasible
        self._has_failed |= not is_feasible
        self._is_new = True

    def discard(self, number: int) -> None:
        """Nothing is known of a trial any more."""
        self._is_new |= self._labels.pop(number, None) is not None

    def now(self) -> LogChance | None:
        """The chance as known so far; None: no trial has failed by its config."""
        if self._is_new and self._has_failed:
            self._is_new = False
            found = fit(self._labels)
            self._found = None if found is None else LogChance(found, self._distributions)
        return self._found

    def _point(self, params: Mapping[str, Any]) -> Point:
        found: list[float] = []
        for name, distribution in self._distributions.items():
            if isinstance(distribution, CategoricalDistribution):
                taken = distribution.to_internal_repr(params[name])
                found += [float(taken == index) for index in range(len(distribution.choices))]
            else:
                found.append(_place(distribution, params[name]))
        return tuple(found)


class LogChance:
    """The logarithm of the chance that a config runs, of tensors.

    Args:
        found: The fitted process.
        distributions: By parameter, in the order of its coordinates.
    """

    def __init__(self, found: Feasibility, distributions: Mapping[str, BaseDistribution]) -> None:
        self._mean = found.mean
        self._points = torch.from_numpy(found.points / found.scales)
        self._scales = torch.from_numpy(np.array(found.scales))
        self._weights = torch.from_numpy(found.weights)
        self._distributions = distributions

    def at(self, places: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Of places by parameter, from 0 to 1, or the index of a choice: tensors of one shape."""
        columns: list[torch.Tensor] = []
        for name, distribution in self._distributions.items():
            if isinstance(distribution, CategoricalDistribution):
                columns += [(places[name] == index) * 1.0 for index in range(len(distribution.choices))]
            else:
                columns.append(places[name])
        scaled = torch.stack(columns, dim=-1) / self._scales
        apart = (scaled[..., None, :] - self._points).square().sum(dim=-1)
        mean = self._mean + (-0.5 * apart).exp() @ self._weights
        likely = torch.sigmoid(STEEP * mean)
        return torch.nn.functional.logsigmoid(STEEP * mean) - WALL * (ENOUGH - likely).clip(min=0.0)


def _place(distribution: BaseDistribution, value: float) -> float:
    """The sampler's place for a value: with steps, the range is half a step wider at both ends."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    half = (distribution.step or 0.0) / 2
    low, high = distribution.low - half, distribution.high + half
    if distribution.log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
