"""`tpe`: a tree-structured Parzen estimator; the model is in `search.models.tpe`."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.model import around, modes_of, refuse_grid
from raysweep.search.options import SearchOptions, check_optuna, needs_packages

TPE_RESULTS: Final = 2000


class TpeOptions(SearchOptions):
    """Tree-structured Parzen estimator, by Optuna (Bergstra et al., 2011)."""

    metrics = "any"
    is_adaptive = True
    takes_priors = True
    is_bounded = True
    is_counted = True

    n_startup_trials: int = Field(default=10, ge=0)
    """The number of random trials before the model is used."""
    n_ei_candidates: int = Field(default=24, ge=1)
    """The number of candidates that are compared for each choice."""
    multivariate: bool = True
    """Model the parameters together."""
    constant_liar: bool = True
    """Count running trials as bad ones, so that parallel trials differ."""
    max_results: int = Field(default=TPE_RESULTS, ge=10)
    """The most results that make the model: the best third and the newest; of several metrics, the front."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "tpe")
        with needs_packages("tpe", "ray", "optuna"):
            from raysweep.search.models.tpe import TpeModel
        check_optuna(setup)
        return around(TpeModel(setup.model_space, setup.seed, modes_of(setup), self), setup)
