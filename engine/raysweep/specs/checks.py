"""Searches and schedulers that are made for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.space.expressions import dotted_name
from raysweep.specs.resources_by_config import needs_of
from raysweep.specs.schedulers import DehbOptions as DehbTimes
from raysweep.specs.schedulers import ResourceChangingOptions
from raysweep.specs.search import DehbOptions

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec


def check_pair(spec: SweepSpec) -> None:
    """See that a search has the scheduler that it learns by, and the other way round. Raises Problem."""
    search, scheduler = spec.search, spec.scheduler
    if search.options.wants_rungs and scheduler.kind != "hyperband":
        problem = f"{search.kind} learns from the rungs of hyperband, and scheduler is {scheduler.kind}"
        raise Problem(problem, "set scheduler: hyperband, or take another search", ("search",))
    evolves, has_times = isinstance(search.options, DehbOptions), isinstance(scheduler.options, DehbTimes)
    if evolves and not has_times:
        problem = f"dehb runs in brackets of its own, and scheduler is {scheduler.kind}"
        raise Problem(problem, "set scheduler: dehb, or take another search", ("search",))
    if has_times and not evolves:
        kind = "left open" if search.is_open else search.kind
        problem = f"dehb gives time to configs that search: dehb has bred, and search is {kind}"
        raise Problem(problem, "set search: dehb, or scheduler: hyperband", ("scheduler",))
    if evolves:
        _check_numbers(spec)
    _check_compared(spec)
    if isinstance(scheduler.options, ResourceChangingOptions):
        _check_share(spec, scheduler.options.param)


def _check_numbers(spec: SweepSpec) -> None:
    """A trial's rung follows from its number, so that no other configs may come before."""
    fix = "leave it out, or use search: bohb with scheduler: hyperband"
    for field, is_given in (("points", bool(spec.points)), ("warm_start", spec.warm_start is not None)):
        if is_given:
            raise Problem("dehb breeds the configs of its shortest rung first, and no others", fix, (field,))


def _check_share(spec: SweepSpec, param: str) -> None:
    """A share that nothing is made of changes nothing."""
    names = {dotted_name(name) for need in needs_of(spec) for name in need.amount.names}
    if param in names:
        return
    where = ("scheduler", "resource_changing", "param")
    if names:
        raise Problem(f"by_config is not made of {show(param)}", did_you_mean(param, sorted(names)), where)
    fix = f"write resources: {{by_config: {{cpu: {param}}}}}"
    if spec.scaling is not None:
        fix = f"write scaling: {{by_config: {{resources_per_worker: {{CPU: {param}}}}}}}"
    raise Problem("changes what a trial takes, and by_config does not say what that is", fix, where)


def _check_compared(spec: SweepSpec) -> None:
    """See that it is known which values of a scheduler's own metric are better. Raises Problem."""
    comparing = spec.scheduler.comparing
    if comparing is None:
        return
    path, (metric, mode) = ("scheduler", *comparing[0].split(".")), (comparing[1].metric, comparing[1].mode)
    if metric is None:
        if mode is not None:
            raise Problem(
                "is the sweep's to say", "leave it out, or name a metric beside it", (*path, "mode")
            )
        return
    if spec.search.options.wants_rungs and metric != spec.metric:
        problem = f"{spec.search.kind} learns from what the sweep's metric is at the rungs"
        raise Problem(problem, "leave it out", (*path, "metric"))
    known = spec.objectives.get(metric)
    if known is None and mode is None:
        fix = "set it to min or max"
        raise Problem(f"is not said of {show(metric)}, which is no metric of the sweep", fix, (*path, "mode"))
    if known is not None and mode not in (None, known):
        problem = f"is {mode} for {show(metric)}, of which the sweep says {known}"
        raise Problem(problem, "leave it out", (*path, "mode"))
