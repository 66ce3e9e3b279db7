"""Search: which config the next trial gets. Importing this room loads no search library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raysweep.errors import SpecError
from raysweep.search.base import Searcher, SearchSetup, TrialEnd
from raysweep.search.configs import ConfigSearcher
from raysweep.search.plugin import PLUGINS, PluginSearcher
from raysweep.search.variants import VariantSearcher
from raysweep.search.warm import WarmSearcher, WarmStart
from raysweep.spec.search import ConfigsOptions, TpeOptions
from raysweep.spec.space import uses
from raysweep.spec.sweep import SweepSpec

__all__ = [
    "SearchSetup",
    "Searcher",
    "TrialEnd",
    "VariantSearcher",
    "WarmStart",
    "load_searcher",
    "make_searcher",
]


def load_searcher(spec: SweepSpec) -> None:
    """Import the class of the spec's searcher, if it is one of the user's own.

    Raises:
        SpecError: it cannot be imported, is no searcher, or its options do not fit.
    """
    if spec.search.is_plugin:
        PLUGINS.load(spec.search.kind)
        make_searcher(spec, spec.seed or 0)


def make_searcher(spec: SweepSpec, seed: int, warm: WarmStart | None = None) -> Searcher:
    """Return the searcher that a spec asks for, before its first ask.

    Args:
        spec: the sweep's spec.
        seed: the seed that the sweep runs with; with the spec it decides every config.
        warm: what earlier sweeps found, as the sweep recorded it at its first start.

    Raises:
        SpecError: the search cannot walk this space, or its library or class is not there.
    """
    setup = SearchSetup(mode=spec.mode, seed=seed, param_space=spec.param_space, num_samples=spec.num_samples)
    make = _KINDS.get(spec.search.kind)
    searcher = make(spec.search.options, setup) if make is not None else PluginSearcher(spec.search, setup)
    if warm is None or isinstance(searcher, ConfigSearcher):
        return searcher
    return WarmSearcher(searcher, warm, has_grid=uses(spec.param_space, "grid_search"))


def _make_variants(options: object, setup: SearchSetup) -> Searcher:
    return VariantSearcher(setup.space, setup.num_samples, setup.seed)


def _make_configs(options: ConfigsOptions, setup: SearchSetup) -> Searcher:
    return ConfigSearcher(options, setup.seed)


def _make_tpe(options: TpeOptions, setup: SearchSetup) -> Searcher:
    try:
        from raysweep.search.optuna_tpe import TpeSearcher
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise SpecError(
            "search", "tpe needs Optuna, which is not installed", "pip install raysweep[ray]"
        ) from error
    return TpeSearcher(setup.space, setup.num_samples, setup.seed, setup.mode, options)


_KINDS: Final[dict[str, Callable[[Any, SearchSetup], Searcher]]] = {
    "random": _make_variants,
    "grid": _make_variants,
    "tpe": _make_tpe,
    "configs": _make_configs,
}
