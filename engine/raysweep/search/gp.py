"""`gp`: a Gaussian process; the model is in `search.models.gp`."""

from __future__ import annotations

from pydantic import Field

from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.model import around, refuse_grid
from raysweep.search.options import CostAwareOptions, check_optuna, needs_packages


class GpOptions(CostAwareOptions):
    """Gaussian process with log expected improvement, by Optuna: few, expensive trials."""

    is_adaptive = True
    takes_priors = True
    is_bounded = True
    is_counted = True

    n_startup_trials: int = Field(default=10, ge=1)
    """The number of random trials before the model is used."""
    deterministic: bool = False
    """A config always gives the same result: the model takes results as exact."""
    warp: bool = True
    """Bring results closer to a normal distribution first (Yeo-Johnson); their order stays."""
    max_results: int = Field(default=300, ge=10)
    """The most results that make the model, as an ask costs their cube: the best third and the newest."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "gp")
        with needs_packages("gp", "gp", "torch", "scipy", "optuna"):
            from raysweep.search.models.gp import GpModel
        check_optuna(setup)
        return around(GpModel(setup.model_space, setup.seed, setup.mode, self), setup)
