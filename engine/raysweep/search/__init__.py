"""Search: which config the next trial gets. Importing this room loads no search library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from raysweep.errors import SpecError
from raysweep.schedulers.dehb import DehbOptions as DehbTimes
from raysweep.schedulers.machinery.brackets import Brackets
from raysweep.search.base import (
    Judging,
    Result,
    Searcher,
    SearchSetup,
    TrialEnd,
    result_of,
    tell_end,
    tell_rung,
)
from raysweep.search.bohb import BohbModel
from raysweep.search.brute import BruteForceSearcher
from raysweep.search.configs import ConfigSearcher
from raysweep.search.dehb import DehbModel
from raysweep.search.machinery.model import Model, ModelSearcher, refuse_grid
from raysweep.search.machinery.plugin import PLUGINS, PluginSearcher, check_plugin
from raysweep.search.machinery.points import FirstPoints
from raysweep.search.machinery.repeat import RepeatSearcher
from raysweep.search.machinery.warm_start import WarmStart, start_warm
from raysweep.search.random_then_auto import OpenSearcher
from raysweep.search.variants import VariantSearcher
from raysweep.specs.default_search import STARTUP
from raysweep.specs.points import come_on_top
from raysweep.specs.search import (
    AutoOptions,
    BohbOptions,
    CmaEsOptions,
    ConfigsOptions,
    DehbOptions,
    GpOptions,
    HaltonOptions,
    Nsga2Options,
    Nsga3Options,
    OpenAutoOptions,
    SobolOptions,
    TpeOptions,
)
from raysweep.specs.sweep import SweepSpec

__all__ = [
    "Judging",
    "Result",
    "SearchSetup",
    "Searcher",
    "TrialEnd",
    "VariantSearcher",
    "WarmStart",
    "load_searcher",
    "make_searcher",
    "result_of",
    "tell_end",
    "tell_rung",
]


def load_searcher(spec: SweepSpec) -> None:
    """Import the class of the spec's searcher, if it is one of the user's own.

    Raises:
        SpecError: it cannot be imported, is no searcher, or its options do not fit.
    """
    if spec.search.is_plugin:
        PLUGINS.load(spec.search.kind)
        make_searcher(spec, spec.seed or 0)
        check_plugin(spec.search, _setup(spec, spec.seed or 0))


def make_searcher(spec: SweepSpec, seed: int, warm: WarmStart | None = None) -> Searcher:
    """Return the searcher that a spec asks for, before its first ask.

    Args:
        spec: the sweep's spec.
        seed: the seed that the sweep runs with; with the spec it decides every config.
        warm: what earlier sweeps found, as the sweep recorded it at its first start.

    Raises:
        SpecError: the search cannot walk this space, or its library or class is not there.
    """
    searcher = _make_inner(spec, _setup(spec, seed), warm)
    return searcher if spec.repeat is None else RepeatSearcher(searcher, spec.repeat, seed)


def _setup(spec: SweepSpec, seed: int) -> SearchSetup:
    return SearchSetup(
        mode=spec.mode,
        seed=seed,
        param_space=spec.param_space,
        where=spec.where,
        modes=tuple(spec.objectives.values()),
        constraints=spec.constraints,
        num_samples=spec.num_samples,
        scheduler=spec.scheduler,
    )


def _make_inner(spec: SweepSpec, setup: SearchSetup, warm: WarmStart | None) -> Searcher:
    make = _make_open if isinstance(spec.search.options, OpenAutoOptions) else _KINDS.get(spec.search.kind)

    def make_plain() -> Searcher:
        return make(spec.search.options, setup) if make is not None else PluginSearcher(spec.search, setup)

    if isinstance(spec.search.options, ConfigsOptions) or (warm is None and not spec.points):
        return make_plain()
    points = FirstPoints(setup.space, spec.points, setup.seed)
    on_top = come_on_top(spec.search, spec.param_space)
    return start_warm(make_plain, warm or WarmStart(), points, has_grid=on_top, is_max=spec.mode == "max")


def _make_variants(options: object, setup: SearchSetup) -> Searcher:
    return VariantSearcher(setup.space, setup.num_samples, setup.seed)


def _make_brute(options: object, setup: SearchSetup) -> Searcher:
    return BruteForceSearcher(setup.space, setup.num_samples, setup.seed)


def _make_configs(options: ConfigsOptions, setup: SearchSetup) -> Searcher:
    return ConfigSearcher(options, setup.seed)


def _make_sequence(options: SobolOptions | HaltonOptions, setup: SearchSetup) -> Searcher:
    kind = "sobol" if isinstance(options, SobolOptions) else "halton"
    refuse_grid(setup.space.searched, kind)
    with _needs(kind, "search", "scipy", "numpy"):
        from raysweep.search.sequences import SequenceSearcher
    return SequenceSearcher(setup.space, setup.num_samples, setup.seed, options)


def _make_tpe(options: TpeOptions, setup: SearchSetup) -> Searcher:
    refuse_grid(setup.space.searched, "tpe")
    with _needs("tpe", "ray", "optuna"):
        from raysweep.search.tpe import TpeModel
    return _around(TpeModel(setup.space, setup.seed, _modes(setup), options), setup)


def _make_gp(options: GpOptions, setup: SearchSetup) -> Searcher:
    refuse_grid(setup.space.searched, "gp")
    with _needs("gp", "gp", "torch", "scipy", "optuna"):
        from raysweep.search.gp import GpModel
    return _around(GpModel(setup.space, setup.seed, setup.mode, options), setup)


def _make_cma(options: CmaEsOptions, setup: SearchSetup) -> Searcher:
    refuse_grid(setup.space.searched, "cma_es")
    with _needs("cma_es", "search", "cmaes", "numpy"):
        from raysweep.search.cma import CmaModel
    return _around(CmaModel(setup.space, setup.seed, setup.mode, options), setup)


def _make_bohb(options: BohbOptions, setup: SearchSetup) -> Searcher:
    refuse_grid(setup.space.searched, "bohb")
    return _around(BohbModel(setup.space, setup.seed, setup.mode, options), setup)


def _make_dehb(options: DehbOptions, setup: SearchSetup) -> Searcher:
    refuse_grid(setup.space.searched, "dehb")
    times = setup.scheduler.options
    if not isinstance(times, DehbTimes):  # the spec has seen to it
        raise SpecError(
            "search",
            f"dehb runs in the brackets of its scheduler, and that is {setup.scheduler.kind}",
            "set scheduler: dehb",
        )
    brackets = Brackets(times.max_t, times.reduction_factor)
    model = DehbModel(setup.space, setup.seed, setup.mode, options, brackets)
    return ModelSearcher(setup.space, setup.num_samples, setup.seed, model, repeats=True)


def _make_nsga(options: Nsga2Options | Nsga3Options, setup: SearchSetup) -> Searcher:
    kind = "nsga3" if isinstance(options, Nsga3Options) else "nsga2"
    refuse_grid(setup.space.searched, kind)
    with _needs(kind, "ray", "optuna"):
        from raysweep.search.nsga import NsgaModel
    return _around(NsgaModel(setup.space, setup.seed, _modes(setup), options), setup)


def _make_open(options: Any, setup: SearchSetup) -> Searcher:
    return OpenSearcher(_make_variants(options, setup), STARTUP, lambda: _make_auto(options, setup))


def _make_auto(options: AutoOptions, setup: SearchSetup) -> Searcher:
    refuse_grid(setup.space.searched, "auto")
    with _needs("auto", "ray", "optuna"):
        from raysweep.search.auto import AutoModel
    with _needs("cost_attr", "gp", "torch", "scipy"):
        model = AutoModel(
            setup.space,
            setup.num_samples,
            setup.seed,
            _modes(setup),
            options,
            has_constraints=bool(setup.constraints),
        )
    return _around(model, setup)


def _modes(setup: SearchSetup) -> str | tuple[str, ...]:
    return setup.modes if len(setup.modes) > 1 else setup.mode


def _around(model: Model, setup: SearchSetup) -> Searcher:
    return ModelSearcher(setup.space, setup.num_samples, setup.seed, model)


@contextmanager
def _needs(kind: str, extra: str, *packages: str) -> Iterator[None]:
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


_KINDS: Final[dict[str, Callable[[Any, SearchSetup], Searcher]]] = {
    "random": _make_variants,
    "grid": _make_variants,
    "tpe": _make_tpe,
    "gp": _make_gp,
    "cma_es": _make_cma,
    "nsga2": _make_nsga,
    "nsga3": _make_nsga,
    "auto": _make_auto,
    "bohb": _make_bohb,
    "dehb": _make_dehb,
    "sobol": _make_sequence,
    "halton": _make_sequence,
    "brute_force": _make_brute,
    "configs": _make_configs,
}
