"""Checks of the scales of a sweep: nothing in the spec may compare trials of different ones."""

from __future__ import annotations

from collections.abc import Iterator

from raysweep.documents.validation import Problem, show
from raysweep.space.scales import counts_of, show_scale
from raysweep.specs.sweep_fields import SweepFields
from raysweep.specs.sweep_parts import Memory

_LEAVE = "leave it out, or give one scale"


def check_scales(spec: SweepFields) -> None:
    """See that scales are no parameters, and that trials of each can be told apart. Raises Problem."""
    if spec.scale and spec.scales:
        raise Problem("cannot be combined with scale", "list all scales in scales", ("scales",))
    where = "scale" if spec.scale else "scales"
    seed = spec.repeat.seed_param if spec.repeat is not None else None
    for name in spec.largest_scale:
        if name in spec.param_space or name == seed:
            what = "is a parameter of param_space" if name in spec.param_space else "gets the seed of repeats"
            raise Problem(f"{show(name)} {what}", "rename one of them", (where,))
    _check_workers(spec, where)
    if spec.has_several_scales:
        for path, problem, fix in _of_one_scale(spec):
            raise Problem(problem, fix, path)
        _check_counts(spec)


def _check_workers(spec: SweepFields, where: str) -> None:
    """`workers` is a scale that `scaling` has already."""
    if spec.scaling is None or spec.scaling.by_config.num_workers is not None:
        return
    workers = spec.scaling.max_workers
    for each in spec.proxy_scales:
        if each.get("workers", workers) != workers:
            problem = f"workers is {each['workers']:g}, and scaling.num_workers {workers}"
            raise Problem(problem, "leave workers out: it is filled in from scaling", (where,))


def _check_counts(spec: SweepFields) -> None:
    assert spec.num_samples is not None, "checked"
    for scale, count in zip(spec.proxy_scales, counts_of(spec.scales, spec.num_samples), strict=True):
        if not count:
            problem = f"{spec.num_samples} configs leave none for {show_scale(scale)}"
            raise Problem(problem, "raise num_samples, or its share", ("scales",))


def _of_one_scale(spec: SweepFields) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Each field that is there and compares all trials: its path, why that cannot be, and the fix."""
    search, scheduler, stop = spec.search, spec.scheduler, spec.stop
    if spec.num_samples is None:
        yield ("num_samples",), "null has no parts for several scales", "give a number"
    if spec.others:
        yield ("metric",), "with several scales, trials are compared by one metric", "give one metric"
    if search.options.is_listed or search.adds_points(spec.param_space):
        problem = f"{search.kind} runs all its configs, and has none to spread over several scales"
        yield ("search",), problem, "set search: auto or random, or give one scale"
    if search.options.wants_rungs or search.options.needs_scheduler is not None:
        problem = f"{search.kind} would compare trials of different scales"
        yield ("search",), problem, "set search: auto, or give one scale"
    options = scheduler.options
    if options.is_population or options.resizes_by is not None:
        problem = f"{scheduler.kind} would compare trials of different scales"
        yield ("scheduler",), problem, "use asha or fifo, or give one scale"
    if isinstance(spec.warm_start, Memory):
        yield ("warm_start",), "anchors would be compared at different scales", "give a number of nights"
    if spec.repeat is not None and spec.repeat.race is not None:
        yield ("repeat", "race"), "would compare configs of different scales", _LEAVE
    for name in ("target", "plateau", "trial_wilcoxon"):
        if getattr(stop, name) is not None:
            yield ("stop", name), "would compare trials of different scales", _LEAVE
