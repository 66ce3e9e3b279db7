"""Bayesian optimization with a Gaussian process, by Optuna.

Algorithm: `optuna.samplers.GPSampler`: a Matern 5/2 kernel with a length scale for each parameter, and log
expected improvement (Ament et al., "Unexpected Improvements to Expected Improvement", NeurIPS 2023); running
trials are taken into account by its q-batch form.
"""

from __future__ import annotations

import warnings
from typing import Any

import optuna
import scipy  # noqa: F401  what the sampler imports when it is first asked, so that a lack of it is told before
import torch  # noqa: F401
from optuna.samplers import BaseSampler, GPSampler
from optuna.trial import FrozenTrial, TrialState

from raysweep.search.cells import LeafPath
from raysweep.search.optuna_model import OptunaModel, quiet_study
from raysweep.spec.search import GpOptions
from raysweep.spec.space import Space

BEST_PART = 3
"""Of results that are too many, this part is the best ones, the rest the newest."""


class GpModel(OptunaModel):
    """A Gaussian process over the results, or over the best and the newest where there are very many."""

    def __init__(self, space: Space, seed: int, mode: str, options: GpOptions) -> None:
        super().__init__(space, seed, mode)
        self._options = options
        self._mode = mode

    def make_sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler with these options."""
        return GPSampler(
            seed=seed,
            n_startup_trials=self._options.n_startup_trials,
            deterministic_objective=self._options.deterministic,
            warn_independent_sampling=False,
        )

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of all modelled leaves. Infinite results count as the worst or best finite one."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna says so of infinite results at each ask
            return super().sample(number, attempt)

    def study_to_ask(self) -> optuna.Study:
        """Return the study, with no more results than the model is to be made of."""
        trials = self._study.get_trials(deepcopy=False)
        done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        if len(done) <= self._options.max_results:
            return self._study
        kept = {trial.number for trial in self._kept(done)}
        study = quiet_study("maximize" if self._mode == "max" else "minimize")
        study.add_trials(
            [trial for trial in trials if trial.state == TrialState.RUNNING or trial.number in kept]
        )
        return study

    def _kept(self, done: list[FrozenTrial]) -> list[FrozenTrial]:
        count = self._options.max_results
        sign = -1 if self._mode == "max" else 1
        ranked = sorted(done, key=lambda trial: (sign * trial.values[0], trial.number))
        best, rest = ranked[: count // BEST_PART], ranked[count // BEST_PART :]
        rest.sort(key=lambda trial: trial.number)
        return best + rest[len(best) - count :]
