"""`auto`: the method that suits the space and the number of results; the model is in `search.models.auto`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.model import around, modes_of, refuse_grid
from raysweep.search.options import CostAwareOptions, check_optuna, needs_packages
from raysweep.space.branches import switch_paths


class AutoOptions(CostAwareOptions):
    """By the space and the number of results: Gaussian process, then CMA-ES; with choices TPE."""

    metrics = "any"
    is_adaptive = True
    takes_priors = True
    is_bounded = True
    is_counted = True

    switch_after: int = Field(default=250, ge=10)
    """After how many results CMA-ES takes over from the Gaussian process, in a space of numbers."""

    def why_no_costs(self, space: Mapping[str, Any]) -> tuple[str, str] | None:
        """In a space with branches it is TPE."""
        if not switch_paths(space):
            return None
        fix = 'leave it out, or take "gp", which models the parameters that every config has'
        return "in a space with branches auto is tpe, which does not go by costs", fix

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "auto")
        with needs_packages("auto", "ray", "optuna"):
            from raysweep.search.models.auto import AutoModel
        check_optuna(setup)
        with needs_packages("cost_attr", "gp", "torch", "scipy"):
            model = AutoModel(
                setup.model_space,
                setup.num_samples,
                setup.seed,
                modes_of(setup),
                self,
                has_constraints=bool(setup.constraints),
            )
        return around(model, setup)
