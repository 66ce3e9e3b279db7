"""BOHB: densities of good and bad configs, at the longest time for which there are results enough.

Algorithm: Falkner, Klein and Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale",
ICML 2018, arXiv:1807.01774, with the settings of the authors' HpBandSter. Results come from the rungs of
HyperBand: each is of a trial, at a time. The model is made of those at the longest time that has `d + 2` of
them in `d` dimensions; those of shorter times are not looked at any more. The best 15 % make one density, the
others another one; of 64 samples around good ones, spread three times as wide, the one with the best ratio is
suggested. Every third config is random. Other than there, of more than `max_results` results the best third
and the newest make the model.

Densities are products of kernels: in a number's range from 0 to 1 a Gaussian, for choices that of Aitchison
and Aitken; bandwidths are by the normal reference rule of statsmodels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from statistics import NormalDist, pstdev
from typing import Annotated, Any, Final

from pydantic import Field

from raysweep.search.base import Result, Searcher, SearchSetup, derived_rng, derived_seed
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.model import (
    around,
    refuse_grid,
    unconditional,
    without_model,
)
from raysweep.search.machinery.window import BEST_PART
from raysweep.search.options import SearchOptions
from raysweep.space.domains import Choice, Float, Integer
from raysweep.space.parsed import Space
from raysweep.space.units import from_unit, to_unit

_LEAST: Final = 1e-32
_SCOTT: Final = 1.06
_NORMAL: Final = NormalDist()
_ROOT: Final = math.sqrt(math.tau)
Place = tuple[float, ...]
"""A config in the model: a number's place in its range, a choice's index."""


BOHB_RESULTS: Final = 250


class BohbOptions(SearchOptions):
    """BOHB (Falkner et al., 2018): learns from the longest rung of `hyperband` that has results enough."""

    is_adaptive = True
    takes_priors = True
    is_bounded = True
    is_counted = True
    wants_rungs = True
    needs_scheduler = "hyperband"

    min_points_in_model: Annotated[int, Field(ge=1)] | None = None
    """A model needs one result more than this at one time; default, and the least: parameters + 1."""
    top_n_percent: int = Field(default=15, ge=1, le=99)
    """The percentage of them that counts as good."""
    num_samples: int = Field(default=64, ge=1)
    """The number of candidates that are compared."""
    random_fraction: float = Field(default=1 / 3, ge=0, le=1)
    """The share of configs that is random."""
    bandwidth_factor: float = Field(default=3.0, gt=0)
    """Candidates are spread this many times as wide as the density of the good ones."""
    min_bandwidth: float = Field(default=1e-3, gt=0)
    """No density is narrower, as a part of a parameter's range."""
    max_results: int = Field(default=BOHB_RESULTS, ge=10)
    """The most results at that time that make the model: the best third and the newest."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "bohb")
        return around(BohbModel(setup.model_space, setup.seed, setup.mode, self), setup)


class BohbModel:
    """Two densities over the leaves that every config has.

    Args:
        space: the parsed search space, without `grid_search`; normal distributions and what is in branches
            are not modelled.
        seed: the seed of the sweep.
        mode: "min" or "max".
        options: see `BohbOptions`.
    """

    substitution: str | None = None

    def __init__(self, space: Space, seed: int, mode: str, options: BohbOptions) -> None:
        self._seed, self._options = seed, options
        self._sign = -1.0 if mode == "max" else 1.0
        self._leaves = [
            (path, domain)
            for path, domain in unconditional(space, "bohb")
            if isinstance(domain, Float | Integer | Choice)
        ]
        if space.parents and not self._leaves:
            raise without_model("bohb")
        self.paths = frozenset(path for path, _ in self._leaves)
        self._values = [each.cardinality if isinstance(each, Choice) else 0 for _, each in self._leaves]
        self._places: dict[int, Place] = {}
        # By time: what each trial had reached then, the smaller the better.
        self._results: dict[float, dict[int, float]] = {}
        self._infeasible: set[int] = set()
        self._densities: tuple[Density, Density] | None = None
        self._is_known = True

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of the leaves that it models."""
        rng = derived_rng(self._seed, derived_seed(self._seed, number, attempt))
        found = self._model()
        if found is None or rng.random() < self._options.random_fraction:
            return {path: domain.sample(rng) for path, domain in self._leaves}
        good, bad = found
        wide, least = self._options.bandwidth_factor, self._options.min_bandwidth
        places = [good.draw(rng, wide, least) for _ in range(self._options.num_samples)]
        best = min(places, key=lambda place: max(bad.at(place), _LEAST) / max(good.at(place), _LEAST))
        return {
            path: domain.values[int(place)] if isinstance(domain, Choice) else from_unit(domain, place)
            for (path, domain), place in zip(self._leaves, best, strict=True)
        }

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Take note of where a trial is."""
        self._places[number] = tuple(
            float(domain.values.index(values[path]))
            if isinstance(domain, Choice)
            else to_unit(domain, values[path])
            for path, domain in self._leaves
        )

    def rung(self, number: int, time: float, value: float) -> None:
        """Take note of what a trial had reached at a time; the first result at that time counts."""
        self._results.setdefault(time, {}).setdefault(number, self._sign * value)
        self._is_known = False

    def end(self, number: int, result: Result | None) -> None:
        """Nothing that the rungs have not said."""

    def end_infeasible(self, number: int, worst: Result) -> None:
        """Count it as the worst at any time, as HpBandSter counts runs that crash."""
        self._infeasible.add(number)
        self._is_known = False

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Take note of a result of an earlier sweep, as of the whole time."""
        number = -1 - len(self._places)
        self.add(number, values)
        self.rung(number, math.inf, result.value)

    def _model(self) -> tuple[Density, Density] | None:
        if not self._is_known:
            self._is_known, self._densities = True, self._fit()
        return self._densities

    def _fit(self) -> tuple[Density, Density] | None:
        """The densities at the longest time that has results enough; None: there is none."""
        dimensions, least = len(self._leaves), self._options.min_points_in_model
        least = dimensions + 1 if least is None else max(least, dimensions + 1)
        times = [time for time, each in self._results.items() if len(each) > least]
        if not times or not dimensions:
            return None
        results = self._results[max(times)] | dict.fromkeys(self._infeasible, math.inf)
        ranked = self._kept(sorted(results, key=lambda number: (results[number], number)))
        share = self._options.top_n_percent
        count = max(least, share * len(ranked) // 100)
        rest = max(least, (100 - share) * len(ranked) // 100)
        good, bad = ranked[:count], ranked[count : count + rest]
        if min(len(good), len(bad)) <= dimensions:
            return None
        return self._density(good), self._density(bad)

    def _kept(self, ranked: list[int]) -> list[int]:
        """Of very many, the best third and the newest, ranked: a candidate is compared with each."""
        most = self._options.max_results
        if len(ranked) <= most:
            return ranked
        best = most // BEST_PART
        newest = set(sorted(ranked[best:])[best - most :])
        return ranked[:best] + [number for number in ranked[best:] if number in newest]

    def _density(self, numbers: Sequence[int]) -> Density:
        places = [self._places[number] for number in numbers]
        return Density(places, self._values, self._options.min_bandwidth)


class Density:
    """A product of kernels around places.

    Args:
        places: at least one, of equal length.
        values: of each dimension, how many values a choice has; 0: it is a number's place from 0 to 1.
        least: no bandwidth is below this.
    """

    def __init__(self, places: Sequence[Place], values: Sequence[int], least: float) -> None:
        self._places, self._values = places, values
        scale = _SCOTT * len(places) ** (-1.0 / (4 + len(values)))
        self.bandwidths = [max(scale * pstdev(column), least) for column in zip(*places, strict=True)]

    def at(self, place: Place) -> float:
        """The density at a place."""
        return sum(self._kernel(place, each) for each in self._places) / len(self._places)

    def draw(self, rng: Random, wide: float, least: float) -> Place:
        """A place near one of those that it is made of."""
        middle = self._places[rng.randrange(len(self._places))]
        return tuple(
            _number(rng, at, max(width, least) * wide) if not count else _choice(rng, at, width, count)
            for at, width, count in zip(middle, self.bandwidths, self._values, strict=True)
        )

    def _kernel(self, place: Place, middle: Place) -> float:
        product = 1.0
        for at, here, width, count in zip(place, middle, self.bandwidths, self._values, strict=True):
            if count:
                spread = min(width, 1.0)
                product *= 1.0 - spread if at == here else spread / max(count - 1, 1)
            else:
                away = (at - here) / width  # as `NormalDist.pdf`, in a third of its time
                product *= math.exp(away * away / -2.0) / _ROOT / width
        return product


def _number(rng: Random, middle: float, width: float) -> float:
    """From a normal distribution that is cut off at 0 and 1."""
    lower, upper = _NORMAL.cdf(-middle / width), _NORMAL.cdf((1.0 - middle) / width)
    at = lower + (upper - lower) * rng.random()
    return min(max(middle + width * _NORMAL.inv_cdf(min(max(at, _LEAST), 1.0 - 2.0**-53)), 0.0), 1.0)


def _choice(rng: Random, value: float, width: float, count: int) -> float:
    return value if rng.random() < 1.0 - min(width, 1.0) else float(rng.randrange(count))
