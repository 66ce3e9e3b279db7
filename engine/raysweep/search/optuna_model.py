"""Optuna's samplers over a study that is rebuilt from the journal instead of unpickled.

Every ask uses a fresh sampler whose seed derives from (sweep seed, trial number), so it depends on the
study's trials only, and a study that is filled again from the journal goes on exactly as the one that was
lost. Sampled trials and restored ones take the same way into the study.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from raysweep.search.base import derived_seed
from raysweep.search.cells import Leaf, LeafPath
from raysweep.search.optuna_params import params_of
from raysweep.spec.space import Space


class OptunaModel(ABC):
    """A study in memory, and a sampler of Optuna's that looks at it.

    Args:
        space: the parsed search space, without `grid_search`.
        seed: the seed of the sweep.
        mode: "min" or "max".
    """

    substitution: str | None = None

    def __init__(self, space: Space, seed: int, mode: str) -> None:
        self._seed = seed
        self._space = space
        self._params = params_of(self.modelled(space))
        self.paths = frozenset(param.path for param in self._params)
        self._distributions = {param.name: param.distribution for param in self._params}
        self._study = quiet_study("maximize" if mode == "max" else "minimize")
        self._numbers: dict[int, int] = {}  # our number -> Optuna's
        self._added = 0

    @staticmethod
    def modelled(space: Space) -> tuple[Leaf, ...]:
        """The leaves that it can know about."""
        return space.searched

    @abstractmethod
    def make_sampler(self, seed: int) -> BaseSampler:
        """Return a sampler for one ask, whose chance comes from this seed of 32 bits."""

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return what `Study.ask` does, for a trial that is not in the study yet."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = self.make_sampler(derived_seed(self._seed, number, attempt) % 2**32)
        study = self.study_to_ask()
        trial = create_trial(state=TrialState.RUNNING)
        trial.number = self._added
        relative_space = sampler.infer_relative_search_space(study, trial)
        sampled = sampler.sample_relative(study, trial, relative_space)
        values: dict[LeafPath, Any] = {}
        for param in self._params:
            if not self._space.is_reached(param.path, values):
                continue
            raw = sampled.get(param.name)
            if raw is None:
                raw = sampler.sample_independent(study, trial, param.name, param.distribution)
            values[param.path] = param.to_value(raw)
        return values

    def study_to_ask(self) -> optuna.Study:
        """Return the study that a sampler looks at."""
        return self._study

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Put a trial into the study, as running."""
        self._study.add_trial(self._trial(values, state=TrialState.RUNNING))
        self._numbers[number] = self._added
        self._added += 1

    def end(self, number: int, value: float | None) -> None:
        """Tell the study how it ended."""
        optuna_number = self._numbers.pop(number)
        if value is None:
            self._study.tell(optuna_number, state=TrialState.FAIL)
        else:
            self._study.tell(optuna_number, value)

    def add_earlier(self, values: Mapping[LeafPath, Any], value: float) -> None:
        """Put a completed trial into the study."""
        self._study.add_trial(self._trial(values, value=value))
        self._added += 1

    def _trial(self, values: Mapping[LeafPath, Any], **state: Any) -> FrozenTrial:
        known = [param for param in self._params if self._space.is_reached(param.path, values)]
        params = {param.name: param.to_param(values[param.path]) for param in known}
        distributions = {name: self._distributions[name] for name in params}
        return create_trial(params=params, distributions=distributions, **state)


def quiet_study(direction: Literal["minimize", "maximize"]) -> optuna.Study:
    """Return an empty study in memory, without Optuna's message about it."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(storage=_Storage(), direction=direction)
    finally:
        optuna.logging.set_verbosity(verbosity)


class _Storage(optuna.storages.InMemoryStorage):
    """A study in memory that does not share half-sampled trials between processes.

    Samplers write them as an attribute of the trial that is being sampled; ours are added when they are
    complete.
    """

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Do nothing."""
