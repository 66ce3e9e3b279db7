"""Optuna's samplers over a study that is rebuilt from the journal instead of unpickled.

Every ask uses a fresh sampler whose seed derives from (sweep seed, trial number), so it depends on the
study's trials only, and a study that is filled again from the journal continues exactly as the one that was
lost. Sampled trials and restored ones take the same way into the study.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from typing import Any, ClassVar, Literal

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from raysweep.search.base import Result, derived_seed
from raysweep.search.machinery.cells import Leaf, LeafPath
from raysweep.search.models.optuna_params import params_of
from raysweep.space.parsed import Space

Modes = str | Sequence[str]
"""The mode of the metric; of several, one for each."""


class OptunaModel(ABC):
    """A study in memory, and a sampler of Optuna's that looks at it.

    Args:
        space: the parsed search space, without `grid_search`.
        seed: the seed of the sweep.
        mode: "min" or "max"; of several metrics, one for each.
    """

    substitution: str | None = None
    most_values: ClassVar[int | None] = None
    """Numbers of more values than these are modelled as continuous; None: none are."""

    def __init__(self, space: Space, seed: int, mode: Modes) -> None:
        self._seed = seed
        self._space = space
        self._params = params_of(self.modelled(space), self.most_values)
        self.paths = frozenset(param.path for param in self._params)
        self._distributions = {param.name: param.distribution for param in self._params}
        self._storage = _Storage()
        self._study = quiet_study(mode, self._storage)
        self._numbers: dict[int, int] = {}  # our number -> Optuna's
        self._running: set[int] = set()  # Optuna's numbers
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
        self._running.add(self._added)
        self._added += 1

    def end(self, number: int, result: Result | None) -> None:
        """Tell the study how it ended."""
        place = self._numbers[number]
        self._running.discard(place)
        trial = self._storage.get_trial(self._trial_id(place))
        if trial.state.is_finished():
            self._storage.replace(trial, result)
        elif result is None:
            self._study.tell(place, state=TrialState.FAIL)
        else:
            self._constrain(place, result)
            self._study.tell(place, result.values)

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Put a completed trial into the study."""
        self._study.add_trial(self._trial(values, values=result.values, constraints=constraints_of(result)))
        self._added += 1

    def _constrain(self, optuna_number: int, result: Result) -> None:
        """Note in a trial of the study, before its end, how far it is from satisfying the constraints."""
        trial_id = self._trial_id(optuna_number)
        for key, value in _constraint_attrs(result).items():
            self._storage.note(trial_id, key, value)

    def _trial_id(self, place: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, place)

    def _trial(self, leaves: Mapping[LeafPath, Any], **state: Any) -> FrozenTrial:
        known = [param for param in self._params if self._space.is_reached(param.path, leaves)]
        params = {param.name: param.to_param(leaves[param.path]) for param in known}
        distributions = {name: self._distributions[name] for name in params}
        return make_trial(params=params, distributions=distributions, **state)


def constraints_of(result: Result) -> dict[str, float] | None:
    """The distances from the constraints for Optuna, by their place."""
    return {str(place): each for place, each in enumerate(result.violations)} or None


def _constraint_attrs(result: Result) -> dict[str, Any]:
    """The attributes of a trial with these constraints: as `Trial.set_constraint` does, and where."""
    return make_trial(state=TrialState.RUNNING, constraints=constraints_of(result)).system_attrs


def make_trial(*, constraints: dict[str, float] | None = None, **state: Any) -> FrozenTrial:
    """As Optuna's `create_trial`, which knows constraints since Optuna 5; see `check_optuna`."""
    if constraints:
        state["constraints"] = constraints
    return create_trial(**state)


def quiet_study(mode: Modes, storage: optuna.storages.BaseStorage | None = None) -> optuna.Study:
    """Return an empty study in memory, without Optuna's message about it. `mode`: see `OptunaModel`."""
    modes = (mode,) if isinstance(mode, str) else mode
    directions: list[Literal["minimize", "maximize"]] = [
        "maximize" if each == "max" else "minimize" for each in modes
    ]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(storage=storage or _Storage(), directions=directions)
    finally:
        optuna.logging.set_verbosity(verbosity)


class _Storage(optuna.storages.InMemoryStorage):
    """A study in memory that does not share half-sampled trials between processes.

    Samplers write them as an attribute of the trial that is being sampled; ours are added when they are
    complete.
    """

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Do nothing."""

    def note(self, trial_id: int, key: str, value: Any) -> None:
        """Set an attribute of a trial that has not ended."""
        super().set_trial_system_attr(trial_id, key, value)

    def replace(self, trial: FrozenTrial, result: Result | None) -> None:
        """Give a trial that has ended another result, as it continued; None: it failed then."""
        changed = copy.copy(trial)
        changed.state = TrialState.FAIL if result is None else TrialState.COMPLETE
        changed.values = None if result is None else list(result.values)
        if result is not None:
            changed.system_attrs = {**trial.system_attrs, **_constraint_attrs(result)}
        with self._lock:
            self._set_trial(trial._trial_id, changed)


class ShownTrials(_Storage):
    """A study of trials that are another study's, with the numbers that they have there."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._trials = trials

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return them, those of these states."""
        shown = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(shown) if deepcopy else shown
