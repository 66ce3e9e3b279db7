"""Searches and schedulers that are made for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.space.expressions import dotted_name
from raysweep.specs.resources_by_config import needs_of

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec


def check_pair(spec: SweepSpec) -> None:
    """See that a search has the scheduler that it learns by, and the other way round. Raises Problem."""
    search, scheduler = spec.search, spec.scheduler
    needed = search.options.needs_scheduler
    if needed is not None and scheduler.kind != needed:
        problem = f"{search.kind} requires scheduler: {needed} (got {scheduler.kind})"
        raise Problem(problem, f"set scheduler: {needed}, or choose another search", ("search",))
    needed = scheduler.options.needs_search
    if needed is not None and search.kind != needed:
        kind = "none" if search.is_open else search.kind
        problem = f"{scheduler.kind} requires search: {needed} (got {kind})"
        raise Problem(problem, f"set search: {needed}, or choose another scheduler", ("scheduler",))
    if not search.options.takes_given:
        _check_none_given(spec)
    _check_compared(spec)
    if (param := scheduler.options.resizes_by) is not None:
        _check_share(spec, param)


def _check_none_given(spec: SweepSpec) -> None:
    for field, is_given in (("points", bool(spec.points)), ("warm_start", spec.warm_start is not None)):
        if is_given:
            problem = f"{spec.search.kind} runs no configs but its own"
            raise Problem(problem, "leave it out, or choose another search", (field,))


def _check_share(spec: SweepSpec, param: str) -> None:
    """A share that nothing is made of changes nothing."""
    names = {dotted_name(name) for need in needs_of(spec) for name in need.amount.names}
    if param in names:
        return
    where = ("scheduler", spec.scheduler.kind, "param")
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
