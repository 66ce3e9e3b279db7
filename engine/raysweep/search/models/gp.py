"""Bayesian optimization with a Gaussian process, by Optuna.

Algorithm: `optuna.samplers.GPSampler`: a Matern 5/2 kernel with a length scale for each parameter, and log
expected improvement (Ament et al., "Unexpected Improvements to Expected Improvement", NeurIPS 2023); running
trials are taken into account by its q-batch form. Unlike there, results are warped first.

Where costs count, most asks go by the expected improvement per cost (Snoek et al., "Practical Bayesian
Optimization of Machine Learning Algorithms", NIPS 2012). Not all: where what is best is dear, as large
networks are, that alone would come to it last. So after as many as cost about what one by the score alone
does, there is one of these: each way has half of what is spent.

Once trials have failed by their config, the expected improvement is multiplied by the chance that a config
runs (`gp_failures`).
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, GPSampler
from optuna.trial import FrozenTrial, TrialState
from scipy import stats
from threadpoolctl import threadpool_limits

from raysweep.errors import SpecError
from raysweep.search.base import Result
from raysweep.search.machinery.cells import Leaf, LeafPath
from raysweep.search.machinery.model import unconditional
from raysweep.search.models.cost import CostModel, LogCost
from raysweep.search.models.gp_failures import LogChance, ParamFailures
from raysweep.search.models.optuna_model import OptunaModel, ShownTrials, quiet_study
from raysweep.space.parsed import Space

Floats = npt.NDArray[np.float64]
MOST_BY_COST = 8
"""At most so many asks in a row go by improvement per cost."""
MOST_AT_ONCE = 500
"""A line of more values costs more than the places on it that are looked at."""
MOST_VALUES = 10_000
"""Optuna looks at each value of a discrete parameter: a wider one is as good as continuous."""
BEST_PART = 3
"""Of results that are too many, this part is the best ones, the rest the newest."""


# At each ask near the end of a search: nothing that anybody could do anything about.
for _name in ("optim_mixed", "gp"):
    logging.getLogger(f"optuna._gp.{_name}").setLevel(logging.ERROR)


class _Options(Protocol):
    """Those of `gp`."""

    @property
    def cost_attr(self) -> str | None: ...

    @property
    def n_startup_trials(self) -> int: ...

    @property
    def deterministic(self) -> bool: ...

    @property
    def warp(self) -> bool: ...

    @property
    def max_results(self) -> int: ...


class GpModel(OptunaModel):
    """A Gaussian process over the results, or over the best and the newest where there are very many.

    What is in a branch is not modelled: its kernel compares configs that have the same parameters.
    """

    most_values = MOST_VALUES

    def __init__(self, space: Space, seed: int, mode: str, options: _Options) -> None:
        super().__init__(space, seed, mode)
        if options.cost_attr is not None:
            _check_hook()
        self._options = options
        self._mode = mode
        self._costs = CostModel(self._params)
        self._cost: LogCost | None = None
        self._failures = ParamFailures(self._params)
        self._results: set[int] = set()

    @staticmethod
    def modelled(space: Space) -> tuple[Leaf, ...]:
        """The leaves that each config has."""
        return unconditional(space, "gp")

    def make_sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler with these options."""
        return CostAwareSampler(
            self._cost,
            self._failures.now() if _has_hook() else None,
            seed=seed,
            n_startup_trials=self._options.n_startup_trials,
            deterministic_objective=self._options.deterministic,
            warn_independent_sampling=False,
        )

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of all modelled leaves."""
        self._cost = self._costs.now() if number % (1 + self._turns_by_cost()) else None
        # Its matrices are small: threads of BLAS would cost three times as much, and take it from the trials.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # of scipy and torch, about results that are nearly all alike
            return super().sample(number, attempt)

    def _turns_by_cost(self) -> int:
        """The asks in a row that go by cost: so many that they cost about what the one by the score does."""
        return min(round(self._costs.spread), MOST_BY_COST)

    def end(self, number: int, result: Result | None) -> None:
        """Tell the study how it ended, and take note of what it cost."""
        place = self._numbers[number]
        super().end(number, result)
        self._note_cost(place, result)
        self._note_end(place, result)

    def end_infeasible(self, number: int, worst: Result) -> None:
        """Tell the study that it failed, and take note of where: that is worth more than a bad result."""
        place = self._numbers[number]
        super().end(number, None)
        self._note_cost(place, None)
        self._failures.add(place, self._params_at(place), is_feasible=False)

    def avoids(self, number: int) -> bool:
        """True if it has enough results to choose by a model, which also accounts for failures."""
        return _has_hook() and len(self._results) >= self._options.n_startup_trials

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Put a completed trial into the study, and take note of what it cost."""
        super().add_earlier(values, result)
        self._note_cost(self._added - 1, result)
        self._note_end(self._added - 1, result)

    def _note_end(self, place: int, result: Result | None) -> None:
        if result is None:
            self._results.discard(place)
            self._failures.discard(place)
        else:
            self._results.add(place)
            self._failures.add(place, self._params_at(place), is_feasible=True)

    def _params_at(self, place: int) -> Mapping[str, Any]:
        return self._study.get_trials(deepcopy=False)[place].params

    def _note_cost(self, place: int, result: Result | None) -> None:
        if self._options.cost_attr is not None:
            self._costs.add(place, self._params_at(place), None if result is None else result.cost)

    def study_to_ask(self) -> optuna.Study:
        """Return the results that the model is made of, in a study of their own, and what runs."""
        trials = self._study.get_trials(deepcopy=False)
        done = self._kept([trial for trial in trials if trial.state == TrialState.COMPLETE])
        if len(done) < self._options.n_startup_trials:
            return self._study
        values = _finite([trial.values[0] for trial in done])
        if self._options.warp:
            values = warped(values)
        shown = [_with_value(trial, value) for trial, value in zip(done, values, strict=True)]
        shown += [trial for trial in trials if trial.state == TrialState.RUNNING]
        return quiet_study(self._mode, ShownTrials(shown))

    def _kept(self, done: list[FrozenTrial]) -> list[FrozenTrial]:
        count = self._options.max_results
        if len(done) <= count:
            return done
        sign = -1 if self._mode == "max" else 1

        def place(trial: FrozenTrial) -> tuple[float, float, int]:
            return _penalty(trial), sign * trial.values[0], trial.number

        ranked = sorted(done, key=place)
        best, rest = ranked[: count // BEST_PART], ranked[count // BEST_PART :]
        rest.sort(key=lambda trial: trial.number)
        return sorted(best + rest[len(best) - count :], key=lambda trial: trial.number)


class CostAwareSampler(GPSampler):
    """Optuna's sampler; where it is told what configs cost, by the expected improvement per cost.

    Args:
        cost: the logarithm of what a config costs; None: the expected improvement alone counts.
        chance: the logarithm of the chance that a config runs; None: all do.
        options: see `optuna.samplers.GPSampler`.
    """

    def __init__(self, cost: LogCost | None, chance: LogChance | None, **options: Any) -> None:
        super().__init__(**options)
        self._cost, self._chance = cost, chance
        self._distributions: dict[str, BaseDistribution] = {}
        self._is_on_cpu = False

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return values for these parameters."""
        self._distributions = search_space
        self._is_on_cpu = torch.get_default_device().type == "cpu"
        return super().sample_relative(study, trial, search_space)

    def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:
        """As Optuna's, of another function. It may be overridden, but need not stay: see `_check_hook`."""
        narrow = _narrow(acqf)
        if narrow.any():
            acqf.search_space = WholeLines(acqf.search_space, narrow)
        # Optuna sets a device for it all, and PyTorch then runs each operation through Python.
        with torch._C.DisableTorchFunction() if self._is_on_cpu else nullcontext():
            return self._optimize(acqf, best_params)

    def _optimize(self, acqf: Any, best_params: Any) -> Any:
        if self._cost is None and self._chance is None:
            return super()._optimize_acqf(acqf, best_params)
        by_score, cost, chance, distributions = acqf.eval_acqf, self._cost, self._chance, self._distributions

        def judged(places: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = by_score(places)
            named = {name: places[..., column] for column, name in enumerate(distributions)}
            if cost is not None:
                params = {name: _param(distributions[name], place) for name, place in named.items()}
                found = found - cost.at(params, torch.log)
            return found if chance is None else found + chance.at(named)

        acqf.eval_acqf = judged
        return super()._optimize_acqf(acqf, best_params)


class WholeLines:
    """Optuna's space, of which discrete parameters of some values are searched like choices: each value.

    Optuna searches more than 16 of them by Brent's method, one place after the other; a place costs nearly as
    much as the whole line, and most of an ask went there.

    Args:
        space: Optuna's.
        narrow: by column, which parameters are searched so.
    """

    def __init__(self, space: Any, narrow: npt.NDArray[np.bool_]) -> None:
        self._space = space
        self.is_categorical = space.is_categorical | narrow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)


def _narrow(acqf: Any) -> npt.NDArray[np.bool_]:
    """The columns that are searched whole; none where Optuna has them in another way."""
    space = getattr(acqf, "search_space", None)
    distributions = getattr(space, "_optuna_search_space", {})
    if not hasattr(space, "is_categorical"):
        return np.zeros(0, dtype=bool)
    sizes = [_size(distribution) for distribution in distributions.values()]
    return np.array([0 < size <= MOST_AT_ONCE for size in sizes], dtype=bool)


def _size(distribution: Any) -> int:
    """The number of values of a distribution; 0: no end of them."""
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    step = distribution.step
    return round((distribution.high - distribution.low) / step) + 1 if step else 0


def _has_hook() -> bool:
    """True if Optuna's acquisition function can be changed: in 5.0 it can."""
    found = getattr(GPSampler, "_optimize_acqf", None)
    return found is not None and list(inspect.signature(found).parameters) == ["self", "acqf", "best_params"]


def _check_hook() -> None:
    if not _has_hook():
        problem = f"cost_attr needs Optuna 5.0, and {optuna.__version__} is installed"
        raise SpecError("search", problem, 'pip install "optuna>=5,<6"')


def _param(distribution: Any, place: torch.Tensor) -> torch.Tensor:
    """A parameter as the distribution has it, of its place from 0 to 1 in the sampler; a choice's index."""
    if isinstance(distribution, CategoricalDistribution):
        return place
    half = (distribution.step or 0.0) / 2
    low, high = distribution.low - half, distribution.high + half
    if distribution.log:
        place = (math.log(low) + place * (math.log(high) - math.log(low))).exp()
    else:
        place = low + place * (high - low)
    return place


def warped(values: list[float]) -> list[float]:
    """Values in the same order, closer to a normal distribution (Yeo and Johnson, 2000).

    A few very bad ones then do not take all the room: as in HEBO (Cowen-Rivers et al., JAIR 2022).
    """
    given = np.array(values)
    spread = float(given.std())
    if not 0.0 < spread < math.inf:
        return values
    standard = (given - given.mean()) / spread
    bent, _ = stats.yeojohnson(standard)
    is_sound = np.isfinite(bent).all() and (np.diff(bent[np.argsort(given)]) >= 0).all()
    return [float(value) for value in (bent if is_sound else standard)]


def _finite(values: list[float]) -> list[float]:
    """Infinite values as the worst or best finite one, as Optuna has it."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    return [min(max(value, min(finite)), max(finite)) for value in values]


def _penalty(trial: FrozenTrial) -> float:
    """A trial's distance from satisfying the constraints; 0: it does."""
    found: dict[str, float] = getattr(trial, "constraints", {})  # since Optuna 5
    return sum(max(each, 0.0) for each in found.values())


def _with_value(trial: FrozenTrial, value: float) -> FrozenTrial:
    changed = copy.copy(trial)
    changed.values = [value]
    return changed
