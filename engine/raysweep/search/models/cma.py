"""CMA-ES, by the package cmaes, over the results in the order of their trials' numbers.

Algorithm: Hansen, "The CMA Evolution Strategy: A Tutorial", 2016; restarts with a doubled population (IPOP):
Auger and Hansen, CEC 2005; a start from earlier results: Nomura et al., "Warm Starting CMA-ES", AAAI 2021.

Which generation a trial belongs to would depend on when others ended, and a resume does not know that. So
generations are cut from the results themselves: sorted by number, the first `population_size` are the first
one, and so on; with one trial at a time these are those of the textbook. A result that comes late moves the
ones after it along, and the generations from there on are computed again.

What breaks a constraint is worse than all of its generation that does not, by as much as it breaks it: Deb,
"An efficient constraint handling method for genetic algorithms", 2000.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import cmaes
import numpy as np

from raysweep.search.base import Result, derived_rng, derived_seed
from raysweep.search.machinery.beliefs import JUDGED
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.model import unconditional, without_model
from raysweep.space.domains import Float, Integer
from raysweep.space.parsed import Space
from raysweep.space.priors import is_believed
from raysweep.space.units import from_unit, is_open, to_unit

WARM_LEAST = 10
"""The fewest earlier results that make a distribution to begin with; fewer make only its middle."""
_FINITE = 1e300
_EDGE = 1e-9
Solution = tuple[Any, float]
Cost = tuple[float, float]
"""The value to minimise, and the distance from satisfying the constraints."""
Judged = tuple[Any, Cost]


class _Options(Protocol):
    """Those of `cma_es`."""

    @property
    def population_size(self) -> int | None: ...

    @property
    def sigma0(self) -> float: ...

    @property
    def restarts(self) -> bool: ...


class CmaModel:
    """A normal distribution over the numeric leaves that moves to where results are good.

    Args:
        space: the parsed search space, without `grid_search`; choices, normal distributions and what is in
            branches are not modelled.
        seed: the seed of the sweep.
        mode: "min" or "max".
        options: see `CmaEsOptions`.
        after: the first so many results are taken as earlier ones.
    """

    substitution: str | None = None

    def __init__(self, space: Space, seed: int, mode: str, options: _Options, after: int = 0) -> None:
        self._seed, self._options, self._after = seed, options, after
        self._sign = -1.0 if mode == "max" else 1.0
        self._leaves = [
            (path, domain)
            for path, domain in unconditional(space, "cma_es")
            if isinstance(domain, Float | Integer) and is_open(domain)
        ]
        if space.parents and not self._leaves:
            raise without_model("cma_es")
        self.paths = frozenset(path for path, _ in self._leaves)
        # Those drawn by priors that may be wrong: of the first generation only where they are its best.
        has_priors = not after and any(is_believed(domain) for _, domain in space.searched)
        self._believed = frozenset(JUDGED if has_priors else ())
        self._earlier: list[Judged] = []
        self._places: dict[int, Any] = {}
        self._ended: list[int] = []  # numbers, sorted
        self._values: dict[int, Cost] = {}
        # After how many results each generation was complete, and the optimizer then, which stays as it is.
        self._states: list[tuple[int, cmaes.CMA]] = []

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of the numeric leaves."""
        if not self._leaves:
            return {}
        # A copy, as asking changes it, and the next generation must not depend on how often it was asked.
        optimizer = copy.deepcopy(self._optimizer())
        optimizer.reseed_rng(derived_seed(self._seed, number, attempt) % 2**32)
        places = optimizer.ask()
        return {
            path: from_unit(domain, float(place))
            for (path, domain), place in zip(self._leaves, places, strict=True)
        }

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Take note of where a trial is."""
        self._places[number] = self._place(values)

    def end(self, number: int, result: Result | None) -> None:
        """Take note of a result; a failed trial is in no generation."""
        if number in self._believed:
            self._end_believed(number, result)
            return
        at = bisect_left(self._ended, number)
        is_known = number in self._values
        if result is None:
            del self._places[number]
            if not is_known:
                return
            del self._values[number], self._ended[at]
        else:
            self._values[number] = self._cost(result)
            if not is_known:
                self._ended.insert(at, number)
        while self._states and (self._states[-1][0] > at or at < self._after):
            self._states.pop()

    def _end_believed(self, number: int, result: Result | None) -> None:
        self._values.pop(number, None)
        if result is not None:
            self._values[number] = self._cost(result)
        self._states.clear()

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Take note of a result that the first generation begins with."""
        self._earlier.append((self._place(values), self._cost(result)))

    def _place(self, values: Mapping[LeafPath, Any]) -> Any:
        return np.array([to_unit(domain, values[path]) for path, domain in self._leaves])

    def _cost(self, result: Result) -> Cost:
        return min(max(self._sign * result.value, -_FINITE), _FINITE), min(result.penalty, _FINITE)

    def _optimizer(self) -> cmaes.CMA:
        """The optimizer after all whole generations."""
        if not self._states:
            first = min(self._after, len(self._ended))
            self._states.append(
                (first, self._begin(_judged([*self._earlier, *self._ended_between(0, first)])))
            )
        while True:
            done, optimizer = self._states[-1]
            until = done + optimizer.population_size
            if until > len(self._ended):
                return optimizer
            after = copy.deepcopy(optimizer)
            after.tell(_judged(self._generation(done, until)))
            if self._options.restarts and after.should_stop():
                after = self._restart(until, after.population_size * 2)
            self._states.append((until, after))

    def _generation(self, first: int, until: int) -> list[Judged]:
        """These results; in the first generation the best by the priors take the place of the worst."""
        own = self._ended_between(first, until)
        if first or not self._believed:
            return own
        own.sort(key=_rank)
        believed = [(self._places[each], self._values[each]) for each in JUDGED if each in self._values]
        better = [each for each in believed if _rank(each) < _rank(own[0])]
        return [*better, *own[: len(own) - len(better)]]

    def _ended_between(self, first: int, until: int) -> list[Judged]:
        return [(self._places[number], self._values[number]) for number in self._ended[first:until]]

    def _begin(self, earlier: Sequence[Solution]) -> cmaes.CMA:
        mean, sigma, covariance = np.full(len(self._leaves), 0.5), self._options.sigma0, None
        if len(earlier) >= WARM_LEAST:
            mean, sigma, covariance = cmaes.get_warm_start_mgd(list(earlier))
        elif earlier:
            mean = min(earlier, key=lambda solution: solution[1])[0]
        return self._make(mean, sigma, covariance, self._options.population_size)

    def _restart(self, results: int, population_size: int) -> cmaes.CMA:
        rng = derived_rng(self._seed, derived_seed(self._seed, results))
        mean = np.array([rng.random() for _ in self._leaves])
        return self._make(mean, self._options.sigma0, None, population_size)

    def _make(self, mean: Any, sigma: float, covariance: Any, population_size: int | None) -> cmaes.CMA:
        dimensions = len(self._leaves)
        return cmaes.CMA(
            mean=np.clip(mean, _EDGE, 1.0 - _EDGE),
            sigma=sigma,
            cov=covariance,
            bounds=np.array([[0.0, 1.0]] * dimensions),
            n_max_resampling=10 * dimensions,
            population_size=population_size,
            seed=0,  # it is seeded before each ask
        )


def _rank(judged: Judged) -> Cost:
    value, penalty = judged[1]
    return penalty, value


def _judged(found: Sequence[Judged]) -> list[Solution]:
    """Places and what they cost, with what breaks a constraint behind all that does not."""
    worst = max((cost for _, (cost, penalty) in found if not penalty), default=0.0)
    return [(place, min(worst + penalty, _FINITE) if penalty else cost) for place, (cost, penalty) in found]
