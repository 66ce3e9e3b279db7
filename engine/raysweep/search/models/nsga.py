"""NSGA-II and NSGA-III, by Optuna, over the results in the order of their trials' numbers.

Algorithm: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE TEC 2002, with its
constrained domination: what satisfies the constraints beats what does not, then what is nearer to it; Deb and
Jain, "An evolutionary many-objective optimization algorithm", IEEE TEC 2014, which keeps who is near to
reference points that are spread over the front, for many metrics.

Which generation a trial belongs to would depend on when others ended, and a resume does not know that. So
generations are cut from the results themselves, as those of CMA-ES are: sorted by number, the first
`population_size` are the first one, and so on. Crossover, mutation and the choice of who survives are those
of `optuna.samplers.NSGAIISampler` and `NSGAIIISampler`.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import optuna
from optuna.samplers import BaseGASampler, NSGAIIISampler, NSGAIISampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from raysweep.search.base import Result, derived_seed
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.model import unconditional
from raysweep.search.models.optuna_model import Modes, constraints_of, make_trial, quiet_study
from raysweep.search.models.optuna_params import params_of
from raysweep.space.parsed import Space

_PARENTS = 2
"""The parents of a crossover."""


class _Options(Protocol):
    """Those of `nsga2` or `nsga3`, all of which Optuna takes."""

    @property
    def called(self) -> str: ...

    @property
    def population_size(self) -> int: ...

    def model_dump(self) -> dict[str, Any]: ...


class NsgaModel:
    """A population: its children are crossed from the best of all generations before.

    Args:
        space: the parsed search space, without `grid_search`; what is in branches is not modelled.
        seed: the seed of the sweep.
        mode: "min" or "max"; of several metrics, one for each.
        options: see `Nsga2Options`, `Nsga3Options`.
    """

    substitution: str | None = None

    def __init__(self, space: Space, seed: int, mode: Modes, options: _Options) -> None:
        self._seed, self._options = seed, options
        self._params = params_of(unconditional(space, options.called))
        self.paths = frozenset(param.path for param in self._params)
        self._distributions = {param.name: param.distribution for param in self._params}
        self._study = quiet_study(mode)
        self._running: dict[int, dict[str, Any]] = {}
        self._earlier: list[FrozenTrial] = []
        self._ended: list[int] = []  # numbers, sorted
        self._results: dict[int, FrozenTrial] = {}
        # After how many results each generation was complete, and who its children have for parents.
        self._generations: list[tuple[int, list[FrozenTrial]]] = []

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of the leaves: those of a child, or in the first generation drawn ones."""
        sampler = self._sampler(derived_seed(self._seed, number, attempt), self._parents())
        trial = create_trial(state=TrialState.RUNNING)
        child = sampler.sample_relative(self._study, trial, self._distributions)
        values: dict[LeafPath, Any] = {}
        for param in self._params:
            raw = child.get(param.name)
            if raw is None:
                raw = sampler.sample_independent(self._study, trial, param.name, param.distribution)
            values[param.path] = param.to_value(raw)
        return values

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Take note of where a trial is."""
        self._running[number] = self._params_of(values)

    def end(self, number: int, result: Result | None) -> None:
        """Take note of a result; a failed trial is in no generation."""
        earlier, at = self._results.pop(number, None), bisect_left(self._ended, number)
        params = self._running.pop(number) if earlier is None else earlier.params
        if earlier is not None:
            del self._ended[at]
        elif result is None:
            return
        if result is not None:
            self._ended.insert(at, number)
            self._results[number] = self._individual(number, params, result)
        while self._generations and self._generations[-1][0] > at:
            self._generations.pop()

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Take note of a result that the first generation may have for a parent."""
        self._earlier.append(self._individual(-1 - len(self._earlier), self._params_of(values), result))

    def _params_of(self, values: Mapping[LeafPath, Any]) -> dict[str, Any]:
        return {param.name: param.to_param(values[param.path]) for param in self._params}

    def _individual(self, number: int, params: Mapping[str, Any], result: Result) -> FrozenTrial:
        trial = make_trial(
            params=dict(params),
            distributions=self._distributions,
            values=result.values,
            constraints=constraints_of(result),
        )
        trial.number = number
        return trial

    def _parents(self) -> list[FrozenTrial]:
        """The best of all whole generations."""
        size = self._options.population_size
        if not self._generations:
            self._generations.append((0, self._survivors(0, self._earlier, [])))
        while True:
            done, parents = self._generations[-1]
            if done + size > len(self._ended):
                return parents
            born = [self._results[number] for number in self._ended[done : done + size]]
            self._generations.append((done + size, self._survivors(done + size, born, parents)))

    def _survivors(
        self, results: int, born: Sequence[FrozenTrial], parents: Sequence[FrozenTrial]
    ) -> list[FrozenTrial]:
        """The trials of a generation and its parents that are parents of the next one."""
        if len(born) + len(parents) < _PARENTS:
            return []
        sampler = self._sampler(derived_seed(self._seed, results), parents, born)
        # By number, as in Optuna's study: which of two is drawn must not depend on how they were sorted out.
        return sorted(sampler.select_parent(self._study, 1), key=lambda trial: trial.number)

    def _sampler(
        self, seed: int, parents: Sequence[FrozenTrial], born: Sequence[FrozenTrial] = ()
    ) -> _Generation2 | _Generation3:
        options: dict[str, Any] = self._options.model_dump()
        make = _Generation3 if self._options.called == "nsga3" else _Generation2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = make(seed=seed % 2**32, **options)
        sampler.parents, sampler.born = parents, born
        return sampler


class _Given(BaseGASampler):
    """With the generations that it is given, in place of those in the study's attributes."""

    parents: Sequence[FrozenTrial] = ()
    born: Sequence[FrozenTrial] = ()

    def get_trial_generation(self, study: optuna.Study, trial: FrozenTrial) -> int:
        return 1

    def get_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        return list(self.born)

    def get_parent_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        return list(self.parents)


class _Generation2(_Given, NSGAIISampler):
    """Optuna's NSGA-II of one generation."""


class _Generation3(_Given, NSGAIIISampler):
    """Optuna's NSGA-III of one generation."""
