"""The options of searchers: the questions that the engine asks of them, and parts that several have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from raysweep.documents.base import SpecModel
from raysweep.documents.kinds import PluginOptions
from raysweep.errors import SpecError
from raysweep.schedulers.options import Metrics
from raysweep.search.base import Searcher, SearchSetup

TRIAL_TIME: Final = "trial_time_s"
"""The seconds that its attempts ran, unless it reports a number of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRule:
    """The value that is a trial's cost, and the value by which it is divided; empty: it is not divided."""

    name: str
    per: str


@contextmanager
def needs_packages(kind: str, extra: str, *packages: str) -> Iterator[None]:
    """Name what is to be installed where one of the packages is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        name = "Optuna" if package == "optuna" else package
        problem = f"{kind} needs {name}, which is not installed"
        raise SpecError("search", problem, f"pip install raysweep[{extra}]") from error


def check_optuna(setup: SearchSetup) -> None:
    """Check that the constraints can be given to Optuna.

    Raises: SpecError: Its trials have no constraints, as before Optuna 5.
    """
    if not setup.constraints:
        return
    from optuna import __version__
    from optuna.trial import FrozenTrial

    if not hasattr(FrozenTrial, "constraints"):
        problem = f"requires Optuna 5 in this search (got {__version__})"
        raise SpecError("constraints", problem, "upgrade optuna, or set search: random")


class SearchOptions(SpecModel):
    """The facts about a search that the engine needs before there is a searcher."""

    is_adaptive: ClassVar[bool] = False
    """True if its suggestions depend on results: then it is asked as late as possible."""
    is_bounded: ClassVar[bool] = False
    """True if it suggests at most `num_samples` configs: a grid among random parameters multiplies them."""
    is_counted: ClassVar[bool] = False
    """True if it suggests as many as that, where no space is exhausted."""
    wants_rungs: ClassVar[bool] = False
    """True if it learns from the values of trials at the times when their scheduler compared them."""
    is_listed: ClassVar[bool] = False
    """True if its configs are all in its options, so that it ends with them."""
    needs_grid: ClassVar[bool] = False
    """True if it requires a `grid_search` in the space."""
    needs_scheduler: ClassVar[str | None] = None
    """The only scheduler that it works with; None: it works with any."""
    takes_priors: ClassVar[bool] = False
    """True if it begins with the priors of parameters."""
    metrics: ClassVar[Metrics] = "one"
    """The metrics of the sweep that it uses."""
    with_one_metric: ClassVar[str] = ""
    """The fix for a sweep of one metric, if `metrics` is `several`."""

    is_open: ClassVar[bool] = False
    """True if the spec leaves the search open, and these are the options for that."""

    def why_no_costs(self, space: Mapping[str, Any]) -> tuple[str, str] | None:
        """The reason why it cannot go by costs in this space, and the fix; None: it can."""
        return None

    @property
    def costs_by(self) -> str | None:
        """The value that is the cost of a trial for it (see `CostAwareOptions`); None: costs do not count."""
        return None

    @property
    def configs_per_seed(self) -> int:
        """The number of trials in a row that share a seed, so that configs can be compared in pairs."""
        return 1

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher with these options, before its first ask. Imports the libraries that it needs.

        Raises:
            SpecError: it cannot search this space, or a library is not installed.
        """
        raise NotImplementedError


class CostAwareOptions(SearchOptions):
    """Those of a search that can go by what a trial costs, too."""

    cost_attr: Annotated[str, Field(min_length=1)] | None = None
    """The cost of a trial, so that what is cheaper is preferred where it promises about as much: a reported
    value, or `trial_time_s`, the seconds that it ran. Default: costs do not count.
    """

    @property
    def costs_by(self) -> str | None:
        """See `cost_attr`."""
        return self.cost_attr


class SearcherPluginOptions(SearchOptions, PluginOptions):
    """Options of a searcher of the user's own, which checks them itself when it is imported."""

    metrics = "any"
    is_adaptive = True
    takes_priors = True
