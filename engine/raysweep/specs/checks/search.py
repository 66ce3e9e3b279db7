"""Checks of the search, and of what it is combined with: scheduler, points, warm start and costs."""

from __future__ import annotations

from typing import Final

from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.search.options import TRIAL_TIME
from raysweep.search.random_then_auto import STARTUP
from raysweep.space.expressions import dotted_name
from raysweep.space.grid_points import grid_points, without_steps
from raysweep.space.parsed import uses
from raysweep.space.priors import has_prior
from raysweep.specs.sweep_fields import SweepFields
from raysweep.specs.sweep_parts import Memory

_NUMBERS: Final = ("uniform", "loguniform", "randint", "lograndint")
_LEARNT: Final = ("choice", "simplex", *_NUMBERS, *(f"q{word}" for word in _NUMBERS))

MOST_POINTS: Final = 1_000_000
"""The most points of a grid that a simplex is part of."""


def can_learn(spec: SweepFields) -> bool:
    """True if `auto` would do anything else than `random`, and is a search for this space at all.

    Not without a metric, where so few trials are wanted that all are drawn, for a grid, for a population,
    which finds its configs itself, nor where there is nothing to learn about.
    """
    if not spec.is_ranked:
        return False
    if spec.num_samples is not None and spec.num_samples <= STARTUP:
        return False
    if spec.scheduler.options.is_population or uses(spec.param_space, "grid_search"):
        return False
    return any(uses(spec.param_space, word) for word in _LEARNT)


def check_grid(spec: SweepFields) -> None:
    """See that a search that walks grids has one, and each simplex points to walk. Raises Problem."""
    if not spec.search.options.needs_grid:
        return
    kind, without_step = spec.search.kind, without_steps(spec.param_space)
    if without_step:
        raise Problem(
            f"a simplex without a step has no points that {show(kind)} could walk",
            'write step, as {"simplex": [...], "step": 0.25}, or search: random',
            ("param_space", *without_step[0]),
        )
    if not uses(spec.param_space, "grid_search") and not uses(spec.param_space, "simplex"):
        raise Problem(
            f"{kind!r} needs a grid_search in param_space",
            'write {"grid_search": [...]} for a parameter, or search: random',
            ("search",),
        )
    points = grid_points(spec.param_space, has_lattices=True)
    if uses(spec.param_space, "simplex") and points > MOST_POINTS:
        raise Problem(
            f"the grid has {points} points, and {show(kind)} walks at most {MOST_POINTS}",
            "make a step of the simplex larger, or set search: random",
            ("param_space",),
        )


def check_priors(spec: SweepFields) -> None:
    """See that the search begins with what priors say. Raises Problem."""
    if spec.search.options.takes_priors or not has_prior(spec.param_space):
        return
    raise Problem(
        f"{spec.search.kind} does not use priors, and param_space has some",
        "leave prior out, or choose auto, random, tpe, gp, cma_es, bohb or nsga2",
        ("search",),
    )


def check_pair(spec: SweepFields) -> None:
    """See that a search has the scheduler that it learns by. Raises Problem."""
    search, scheduler = spec.search, spec.scheduler
    needed = search.options.needs_scheduler
    if needed is not None and scheduler.kind != needed:
        problem = f"{search.kind} requires scheduler: {needed} (got {scheduler.kind})"
        raise Problem(problem, f"set scheduler: {needed}, or choose another search", ("search",))
    _check_compared(spec)
    if (param := scheduler.options.resizes_by) is not None:
        _check_share(spec, param)


def _check_share(spec: SweepFields, param: str) -> None:
    """A share that nothing is made of changes nothing."""
    names = {dotted_name(name) for need in spec.needs for name in need.amount.names}
    if param in names:
        return
    where = ("scheduler", spec.scheduler.kind, "param")
    if names:
        raise Problem(f"by_config is not made of {show(param)}", did_you_mean(param, sorted(names)), where)
    fix = f"write resources: {{by_config: {{cpu: {param}}}}}"
    if spec.scaling is not None:
        fix = f"write scaling: {{by_config: {{resources: {{cpu: {param}}}}}}}"
    raise Problem("requires by_config, which makes the resources from the parameter", fix, where)


def _check_compared(spec: SweepFields) -> None:
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
        problem = f"{spec.search.kind} requires the sweep's metric at the rungs"
        raise Problem(problem, "leave it out", (*path, "metric"))
    known = spec.objectives.get(metric)
    if known is None and mode is None:
        fix = "set it to min or max"
        raise Problem(f"is required: {show(metric)} is not one of the sweep's metrics", fix, (*path, "mode"))
    if known is not None and mode not in (None, known):
        problem = f"is {mode} for {show(metric)}, but the sweep has mode {known}"
        raise Problem(problem, "leave it out", (*path, "mode"))


def check_costs(spec: SweepFields) -> None:
    """See that a search that goes by costs can do so. Raises Problem."""
    name = spec.search.options.costs_by
    if name is None:
        return
    where = ("search", spec.search.kind, "cost_attr")
    if name in spec.objectives:
        fix = f"name another value that is reported, or {TRIAL_TIME}"
        raise Problem(f"{show(name)} is the metric itself", fix, where)
    if spec.others:
        fix = "leave it out, or give one metric and make constraints of the others"
        raise Problem("cannot be combined with several metrics", fix, where)
    if (refusal := spec.search.options.why_no_costs(spec.param_space)) is not None:
        raise Problem(*refusal, where)


def check_points(spec: SweepFields) -> None:
    """See that there is room for `points`, and that the space has their parameters. Raises Problem."""
    points, search, space, num_samples = spec.points, spec.search, spec.param_space, spec.num_samples
    if not points:
        return
    if search.options.is_listed:
        raise Problem(
            f"cannot be combined with the {search.kind} search", "put them into its configs", ("points",)
        )
    for number, point in enumerate(points):
        for name in point:
            if name not in space:
                problem = f"{name!r} is not in param_space"
                raise Problem(problem, did_you_mean(name, space), ("points", number))
    if num_samples is not None and len(points) > num_samples and not search.adds_points(space):
        raise Problem(
            f"{len(points)} configs are more than num_samples {num_samples}",
            f"set num_samples to {len(points)} or more, or leave some out",
            ("points",),
        )


def check_memory(spec: SweepFields) -> None:
    """See that anchors can be compared, and are of use. Raises Problem."""
    memory = spec.warm_start
    if not isinstance(memory, Memory):
        return
    options = spec.search.options
    if not options.is_adaptive or options.wants_rungs:
        why = "learns from rungs" if options.wants_rungs else "does not look at results"
        raise Problem(
            f"anchors are for a search that learns from final results, and {show(spec.search.kind)} {why}",
            "set search to auto or tpe, or warm_start to champion",
            ("warm_start",),
        )
    if spec.others:
        raise Problem(
            "anchors are compared by one metric, and there are several",
            "give one metric, or a number of runs, which are told as they are",
            ("warm_start",),
        )
    count = 1 + memory.anchors + len(spec.points)
    if spec.num_samples is not None and count >= spec.num_samples:
        raise Problem(
            f"the champion, {memory.anchors} anchors and {len(spec.points)} points leave nothing of"
            f" num_samples {spec.num_samples} to search with",
            f"set num_samples to more than {count}, or fewer anchors",
            ("warm_start", "anchors"),
        )
