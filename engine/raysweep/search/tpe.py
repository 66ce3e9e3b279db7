"""TPE, by Optuna.

Algorithm: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NIPS 2011, as in
`optuna.samplers.TPESampler`; with `multivariate`, Falkner et al., "BOHB", ICML 2018.
"""

from __future__ import annotations

from optuna.samplers import BaseSampler, TPESampler

from raysweep.search.optuna_model import Modes, OptunaModel
from raysweep.spec.search import TpeOptions
from raysweep.spec.space import Space


class TpeModel(OptunaModel):
    """Tree-structured Parzen estimator; with `constant_liar` it keeps away from where trials run.

    What is in branches is modelled from the trials that took them: leaves that are always there together,
    together (Optuna's `group`).
    """

    def __init__(self, space: Space, seed: int, mode: Modes, options: TpeOptions) -> None:
        super().__init__(space, seed, mode)
        self._options = options
        self._has_branches = bool(space.parents)

    def make_sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler with these options."""
        return TPESampler(
            seed=seed,
            n_startup_trials=self._options.n_startup_trials,
            n_ei_candidates=self._options.n_ei_candidates,
            multivariate=self._options.is_multivariate,
            constant_liar=self._options.constant_liar,
            group=self._options.is_multivariate and self._has_branches,
        )
