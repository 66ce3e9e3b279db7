"""`nsga2` and `nsga3`: genetic algorithms; the model is in `search.models.nsga`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from raysweep.schedulers.options import Metrics
from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.model import around, modes_of, refuse_grid
from raysweep.search.options import SearchOptions, check_optuna, needs_packages


class Nsga2Options(SearchOptions):
    """Nondominated sorting genetic algorithm II (Deb et al., 2002), by Optuna: many trials, constraints."""

    called: ClassVar[str] = "nsga2"
    metrics: ClassVar[Metrics] = "any"
    is_adaptive = True
    takes_priors = True
    is_bounded = True
    is_counted = True

    former_fields: ClassVar[dict[str, str]] = {
        "crossover_prob": "leave it out: it is 0.9",
        "swapping_prob": "leave it out: it is 0.5",
        "dividing_parameter": "leave it out: it is 3",
    }

    population_size: int = Field(default=50, ge=2)
    """Results that make a generation; the first one is random."""
    mutation_prob: Annotated[float, Field(ge=0, le=1)] | None = None
    """The probability that a parameter is drawn anew; default: 1 / the number of parameters."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, self.called)
        with needs_packages(self.called, "ray", "optuna"):
            from raysweep.search.models.nsga import NsgaModel
        check_optuna(setup)
        return around(NsgaModel(setup.model_space, setup.seed, modes_of(setup), self), setup)


class Nsga3Options(Nsga2Options):
    """Nondominated sorting genetic algorithm III (Deb and Jain, 2014), by Optuna: four metrics and more."""

    called = "nsga3"
    metrics = "several"
    with_one_metric = "nsga2"
