"""The searcher of a sweep, made from its spec."""

from __future__ import annotations

from typing import Any, Protocol

from raysweep.documents.mode import Mode
from raysweep.schedulers.making import Scheduled
from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.plugin import PLUGINS, check_plugin
from raysweep.search.machinery.points import FirstPoints
from raysweep.search.machinery.repeat import Repeat, RepeatSearcher
from raysweep.search.machinery.warm_start import WarmStart, start_warm
from raysweep.search.options import SearcherPluginOptions
from raysweep.search.spec import SearchSpec


class Searched(Scheduled, Protocol):
    """What a searcher is made from: `SweepSpec` has it."""

    @property
    def search(self) -> SearchSpec:
        """Which search, with its options."""
        ...

    @property
    def mode(self) -> Mode:
        """The mode of the first metric."""
        ...

    @property
    def constraints(self) -> tuple[str, ...]:
        """What results have to satisfy."""
        ...

    @property
    def num_samples(self) -> int | None:
        """How many configs; None: as many as there is time for."""
        ...

    @property
    def repeat(self) -> Repeat | None:
        """How often each config runs."""
        ...

    @property
    def points(self) -> tuple[dict[str, Any], ...]:
        """Configs that run first."""
        ...


def load_searcher(spec: Searched) -> None:
    """Import the class of the spec's searcher, if it is one of the user's own.

    Raises:
        SpecError: it cannot be imported, is not a searcher, or its options do not fit.
    """
    options = spec.search.options
    if isinstance(options, SearcherPluginOptions):
        PLUGINS.load(spec.search.kind)
        make_searcher(spec, spec.seed or 0)
        check_plugin(spec.search.kind, options, _setup(spec, spec.seed or 0))


def make_searcher(spec: Searched, seed: int, warm: WarmStart | None = None) -> Searcher:
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


def _setup(spec: Searched, seed: int) -> SearchSetup:
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


def _make_inner(spec: Searched, setup: SearchSetup, warm: WarmStart | None) -> Searcher:
    if spec.search.options.is_listed or (warm is None and not spec.points):
        return spec.search.make(setup)
    points = FirstPoints(setup.space, spec.points, setup.seed)
    has_grid = spec.search.adds_points(spec.param_space)
    is_max = spec.mode == "max"
    return start_warm(
        lambda: spec.search.make(setup), warm or WarmStart(), points, has_grid=has_grid, is_max=is_max
    )
