"""Search: which config the next trial gets. Importing this room loads no search library."""

from __future__ import annotations

from raysweep.errors import SpecError
from raysweep.search.base import Searcher, TrialEnd
from raysweep.search.configs import ConfigSearcher
from raysweep.search.variants import VariantSearcher
from raysweep.search.warm import WarmSearcher, WarmStart
from raysweep.spec.search import ConfigsOptions, TpeOptions
from raysweep.spec.space import uses
from raysweep.spec.sweep import SweepSpec

__all__ = ["Searcher", "TrialEnd", "VariantSearcher", "WarmStart", "make_searcher"]


def make_searcher(spec: SweepSpec, seed: int, warm: WarmStart | None = None) -> Searcher:
    """Return the searcher that a spec asks for, before its first ask.

    Args:
        spec: the sweep's spec.
        seed: the seed that the sweep runs with; with the spec it decides every config.
        warm: what earlier sweeps found, as the sweep recorded it at its first start.

    Raises:
        SpecError: the search cannot walk this space, or its library is not installed.
    """
    options = spec.search.options
    if isinstance(options, ConfigsOptions):
        return ConfigSearcher(options, seed)
    searcher = _plain_searcher(spec, seed)
    return (
        searcher
        if warm is None
        else WarmSearcher(searcher, warm, has_grid=uses(spec.param_space, "grid_search"))
    )


def _plain_searcher(spec: SweepSpec, seed: int) -> Searcher:
    options = spec.search.options
    if not isinstance(options, TpeOptions):
        return VariantSearcher(spec.space, spec.num_samples, seed)
    try:
        from raysweep.search.optuna_tpe import TpeSearcher
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise SpecError(
            "search", "tpe needs Optuna, which is not installed", "pip install raysweep[ray]"
        ) from error
    return TpeSearcher(spec.space, spec.num_samples, seed, spec.mode, options)
