"""`cma_es`: covariance matrix adaptation; the model is in `search.models.cma`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.model import around, refuse_grid
from raysweep.search.options import SearchOptions, needs_packages


class CmaEsOptions(SearchOptions):
    """Covariance matrix adaptation (Hansen, 2016) by the package cmaes: numeric parameters, many trials."""

    is_adaptive = True
    takes_priors = True
    is_bounded = True
    is_counted = True

    population_size: Annotated[int, Field(ge=4)] | None = None
    """Results that make a generation; default: 4 + 3 ln(number of numeric parameters), rounded down."""
    sigma0: float = Field(default=1 / 6, gt=0, le=1)
    """The spread of the first generation, as a part of each parameter's range."""
    restarts: bool = True
    """Begin anew elsewhere, with twice the population, once the search has converged."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "cma_es")
        with needs_packages("cma_es", "search", "cmaes", "numpy"):
            from raysweep.search.models.cma import CmaModel
        return around(CmaModel(setup.model_space, setup.seed, setup.mode, self), setup)
