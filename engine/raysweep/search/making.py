"""The searcher of a sweep, made from its spec."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from raysweep.documents.mode import Mode
from raysweep.schedulers.making import Scheduled
from raysweep.search.base import Searcher, SearchSetup, derived_seed
from raysweep.search.machinery.plugin import PLUGINS, check_plugin
from raysweep.search.machinery.points import FirstPoints
from raysweep.search.machinery.repeat import Repeat, RepeatSearcher
from raysweep.search.machinery.scaled import Part, ScaledSearcher
from raysweep.search.machinery.warm_start import WarmStart, start_warm
from raysweep.search.options import SearcherPluginOptions
from raysweep.search.spec import SearchSpec
from raysweep.space.scales import Scale, counts_of

Points = tuple[dict[str, Any], ...]


class Searched(Scheduled, Protocol):
    """The fields that a searcher is made from: `SweepSpec` has them."""

    @property
    def search(self) -> SearchSpec:
        """The search algorithm, with its options."""
        ...

    @property
    def mode(self) -> Mode:
        """The mode of the first metric."""
        ...

    @property
    def constraints(self) -> tuple[str, ...]:
        """Constraints that results have to satisfy."""
        ...

    @property
    def num_samples(self) -> int | None:
        """The number of configs; None: as many as there is time for."""
        ...

    @property
    def scales(self) -> tuple[dict[str, float], ...]:
        """The same with the shares of several."""
        ...

    @property
    def repeat(self) -> Repeat | None:
        """The number of runs of each config."""
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
        scale = spec.proxy_scales[0] if spec.proxy_scales else {}
        check_plugin(spec.search.kind, options, _setup(spec, spec.seed or 0, scale))


def make_searcher(spec: Searched, seed: int, warm: WarmStart | None = None) -> Searcher:
    """Return the searcher that a spec asks for, before its first ask.

    Args:
        spec: the sweep's spec.
        seed: the seed that the sweep runs with; with the spec it decides every config.
        warm: what earlier sweeps found, as the sweep recorded it at its first start.

    Raises:
        SpecError: the search cannot walk this space, or its library or class is not there.
    """
    scales = spec.proxy_scales
    if len(scales) > 1:
        searcher: Searcher = _make_scaled(spec, seed, warm or WarmStart())
    else:
        setup = _setup(spec, seed, scales[0] if scales else {})
        searcher = _make_inner(spec, setup, warm, spec.points)
    return searcher if spec.repeat is None else RepeatSearcher(searcher, spec.repeat, seed)


def _make_scaled(spec: Searched, seed: int, warm: WarmStart) -> Searcher:
    """A search for each scale; the champion and `points` run at the smallest."""
    assert spec.num_samples is not None, "required with several scales"
    parts = []
    for place, count in enumerate(counts_of(spec.scales, spec.num_samples)):
        scale = spec.proxy_scales[place]
        setup = replace(
            _setup(spec, seed if place == 0 else derived_seed(seed, place) % 2**63, scale), num_samples=count
        )
        points = spec.points if place == 0 else ()
        known = warm.at_scale(scale, is_first=place == 0)
        parts.append(Part(scale, count, partial(_make_inner, spec, setup, known, points)))
    learns = spec.search.options.is_adaptive and not spec.search.is_plugin
    return ScaledSearcher(parts, learns=learns, is_max=spec.mode == "max")


def _setup(spec: Searched, seed: int, scale: Scale) -> SearchSetup:
    return SearchSetup(
        mode=spec.mode,
        seed=seed,
        param_space={**spec.param_space, **scale},
        where=spec.where,
        modes=tuple(spec.objectives.values()),
        constraints=spec.constraints,
        num_samples=spec.num_samples,
        scheduler=spec.scheduler,
    )


def _make_inner(spec: Searched, setup: SearchSetup, warm: WarmStart | None, points_given: Points) -> Searcher:
    if spec.search.options.is_listed or (warm is None and not points_given):
        return spec.search.make(setup)
    points = FirstPoints(setup.space, points_given, setup.seed)
    has_grid = spec.search.adds_points(spec.param_space)
    is_max = spec.mode == "max"
    return start_warm(
        lambda: spec.search.make(setup), warm or WarmStart(), points, has_grid=has_grid, is_max=is_max
    )
