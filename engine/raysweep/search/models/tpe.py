"""TPE, by Optuna.

Algorithm: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NIPS 2011, as in
`optuna.samplers.TPESampler`; with `multivariate`, Falkner et al., "BOHB", ICML 2018.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Final, Protocol

import optuna
from optuna.samplers import BaseSampler, TPESampler

from raysweep.search.base import Result
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.window import FRONT_PART, Window
from raysweep.search.models.optuna_model import Modes, OptunaModel, ShownTrials, quiet_study
from raysweep.space.parsed import Space

GOOD: Final = 0.1


class _Options(Protocol):
    """Those of `tpe`."""

    @property
    def n_startup_trials(self) -> int: ...

    @property
    def n_ei_candidates(self) -> int: ...

    @property
    def multivariate(self) -> bool: ...

    @property
    def constant_liar(self) -> bool: ...

    @property
    def max_results(self) -> int: ...


class TpeModel(OptunaModel):
    """Tree-structured Parzen estimator; with `constant_liar` it keeps away from where trials run.

    What is in branches is modelled from the trials that took them: leaves that are always there together,
    together (Optuna's `group`). Of more than `max_results` results, it is made of the best and the newest.
    """

    def __init__(self, space: Space, seed: int, mode: Modes, options: _Options) -> None:
        super().__init__(space, seed, mode)
        self._options, self._modes = options, mode
        self._window = Window(options.max_results, (mode,) if isinstance(mode, str) else mode)
        self._has_branches = bool(space.parents)

    def make_sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler with these options."""
        options: dict[str, Any] = {
            "seed": seed,
            "n_startup_trials": self._options.n_startup_trials,
            "n_ei_candidates": self._options.n_ei_candidates,
            "multivariate": self._options.multivariate,
            "constant_liar": self._options.constant_liar,
            "group": self._options.multivariate and self._has_branches,
        }
        if self._window.is_full and not isinstance(self._modes, str):
            options["gamma"] = self._good
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Optuna means to drop `gamma` in version 6
            return TPESampler(**options)

    def _good(self, _: int) -> int:
        """The results that count as good, of several metrics: a tenth of all, as Optuna has it."""
        return min(math.ceil(GOOD * self._window.count), self._options.max_results // FRONT_PART)

    def end(self, number: int, result: Result | None) -> None:
        """Tell the study how it ended."""
        place = self._numbers[number]
        super().end(number, result)
        self._window.add(place, result)

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Put a completed trial into the study."""
        super().add_earlier(values, result)
        self._window.add(self._added - 1, result)

    def study_to_ask(self) -> optuna.Study:
        """Return the study; of one with very many results those that count, and what runs."""
        if not self._window.is_full:
            return self._study
        trials = self._study.get_trials(deepcopy=False)
        places = sorted([*self._window.kept(), *self._running])
        return quiet_study(self._modes, ShownTrials([trials[place] for place in places]))
