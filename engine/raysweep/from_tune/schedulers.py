"""Schedulers of Ray Tune as this spec's own, read without importing Ray.

Ray 2.60 keeps what it was given in private attributes. `tests/unit/from_tune/test_ray_schedulers.py` fails if
one moves. What a scheduler has learnt is not taken over: it is read before it has run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from raysweep.documents.code.ray_objects import is_tune_scheduler, kind_of
from raysweep.documents.json_values import leaves
from raysweep.documents.validation import Problem, show
from raysweep.space.domains import Float
from raysweep.space.parsed import is_domain, normalise
from raysweep.space.perturbation import bounded_leaves

ANOTHER: Final = 'give scheduler="asha", or another of raysweep\'s schedulers'
"""The fix for a scheduler of which nothing better is known."""


class Objection(NamedTuple):
    """A part of a scheduler that has no counterpart (empty: all of it), the problem, and the fix."""

    part: str
    problem: str
    fix: str


class Read(NamedTuple):
    """`scheduler` as a spec has it; None: trials run to their end, in order."""

    scheduler: dict[str, Any] | None
    objections: tuple[Objection, ...] = ()


def read_scheduler(scheduler: Any, param_space: Mapping[str, Any]) -> Read:
    """The spec of a `ray.tune.schedulers` object.

    Args:
        scheduler: the object, or None.
        param_space: the sweep's: what a population explores has its domains there, and nowhere else.
    """
    kind = kind_of(scheduler)
    if kind in ("", "FIFOScheduler"):
        return Read(None)
    if kind == "PopulationBasedTrainingReplay":
        return Read(None, (_replay(scheduler),))
    if kind not in _READERS:
        return Read(None, (Objection("", f"{kind} has no counterpart", _INSTEAD.get(kind, ANOTHER)),))
    name, read = _READERS[kind]
    objections = [*_object(scheduler, kind, param_space)]
    return Read({name: read(scheduler)}, tuple(objections))


def with_own_scheduler(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a sweep with a scheduler of Ray's as raysweep's, and its metric where none is given.

    Raises: Problem.
    """
    scheduler = fields.get("scheduler")
    if not is_tune_scheduler(scheduler):
        return fields
    space = fields.get("param_space", {})
    own, objections = read_scheduler(scheduler, space if isinstance(space, Mapping) else {})
    for part, problem, fix in objections:
        whose = f"{kind_of(scheduler)}.{part}: " if part else ""
        raise Problem(f"{whose}{problem}", fix, ("scheduler",))
    goal = {name: getattr(scheduler, f"_{name}", None) for name in ("metric", "mode")}
    given = {name: value for name, value in goal.items() if value and fields.get(name) is None}
    return {
        **fields,
        **given,
        "scheduler": "fifo" if own is None else by_own_metric(own, goal, {**fields, **given}),
    }


def by_own_metric(own: dict[str, Any], goal: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The scheduler with the metric and mode that it has itself (`goal`), where the sweep has another."""
    said = {name: value for name, value in goal.items() if value and value != fields.get(name)}
    if "metric" not in said:
        said.pop("mode", None)
    elif goal["mode"]:
        said["mode"] = goal["mode"]
    return {kind: {**options, **said} for kind, options in own.items()}


def _asha(scheduler: Any) -> dict[str, Any]:
    return {
        "max_t": scheduler._max_t,
        "grace_period": scheduler._brackets[0]._rungs[-1][0],
        "reduction_factor": scheduler._reduction_factor,
        "brackets": len(scheduler._brackets),
        "time_attr": scheduler._time_attr,
    }


def _hyperband(scheduler: Any) -> dict[str, Any]:
    return {
        "max_t": scheduler._max_t_attr,
        "reduction_factor": scheduler._eta,
        "time_attr": scheduler._time_attr,
    }


def _median(scheduler: Any) -> dict[str, Any]:
    return {
        "grace_period": scheduler._grace_period,
        "min_samples_required": scheduler._min_samples_required,
        "hard_stop": scheduler._hard_stop,
        "time_attr": scheduler._time_attr,
    }


def _pbt(scheduler: Any) -> dict[str, Any]:
    return {
        "perturbation_interval": scheduler._perturbation_interval,
        "burn_in_period": scheduler._burn_in_period,
        "hyperparam_mutations": [name for name, _ in leaves(scheduler._hyperparam_mutations)],
        "quantile_fraction": scheduler._quantile_fraction,
        "resample_probability": scheduler._resample_probability,
        "perturbation_factors": list(scheduler._perturbation_factors),
        "synch": scheduler._synch,
        "time_attr": scheduler._time_attr,
    }


def _pb2(scheduler: Any) -> dict[str, Any]:
    return {
        "perturbation_interval": scheduler._perturbation_interval,
        "hyperparam_bounds": [name for name, _ in leaves(scheduler._hyperparam_bounds)],
        "quantile_fraction": scheduler._quantile_fraction,
        "synch": scheduler._synch,
        "time_attr": scheduler._time_attr,
    }


_READERS: Final[Mapping[str, tuple[str, Callable[[Any], dict[str, Any]]]]] = {
    "AsyncHyperBandScheduler": ("asha", _asha),
    "HyperBandScheduler": ("hyperband", _hyperband),
    "HyperBandForBOHB": ("hyperband", _hyperband),
    "MedianStoppingRule": ("median_stopping", _median),
    "PopulationBasedTraining": ("pbt", _pbt),
    "PB2": ("pb2", _pb2),
}


_INSTEAD: Final = {
    "ResourceChangingScheduler": "give resources.by_config, and scheduler: resource_changing",
}


def _replay(scheduler: Any) -> Objection:
    """The replacement of a `PopulationBasedTrainingReplay`: the schedule that it has read."""
    problem = "PopulationBasedTrainingReplay trains one model by a schedule; it is not a sweep"
    ask = "in the trainable ask rs.get_context().config_at(step, config), which in a trial gives its config"
    if not scheduler._policy:
        return Objection(
            "", problem, f"it holds no change of config: run a TrainSpec with your config; {ask}"
        )
    # A donor of a donor may have changed at the same step: what came last was trained with.
    configs = {0: scheduler.config, **dict(scheduler._policy)}
    schedule = [{"from": start, "config": configs[start]} for start in sorted(configs)]
    return Objection("", problem, f"run a TrainSpec, and {ask}; its schedule: {json.dumps(schedule)}")


def _object(scheduler: Any, kind: str, param_space: Mapping[str, Any]) -> Iterator[Objection]:
    if getattr(scheduler, "_stop_last_trials", True) is False:
        yield Objection("stop_last_trials", "False lets trials run beyond max_t", "raise max_t instead")
    if kind == "MedianStoppingRule" and scheduler._min_time_slice and not scheduler._hard_stop:
        problem = "a trial that is paused here waits until no other runs"
        yield Objection("min_time_slice", problem, "leave it out, or set hard_stop")
    if getattr(scheduler, "_custom_explore_fn", None) is not None:
        fix = "leave it out, and say with where what a config has to satisfy"
        yield Objection("custom_explore_fn", f"{show(scheduler._custom_explore_fn)} is code", fix)
    if kind == "PB2":
        for name, bounds in leaves(scheduler._hyperparam_bounds):
            yield from _object_to_bounds(name, bounds, param_space)
    if kind == "PopulationBasedTraining":
        there = dict(leaves(param_space, is_leaf=is_domain))
        for name, domain in leaves(scheduler._hyperparam_mutations):
            yield from _object_to(name, domain, there.get(name))


def _object_to(name: str, domain: Any, there: Any) -> Iterator[Objection]:
    """A population explores a parameter in its own domain, that of the space."""
    part = f"hyperparam_mutations.{name}"
    if isinstance(domain, list | tuple):
        domain = {"choice": list(domain)}
    elif callable(domain) and not hasattr(domain, "get_sampler"):
        yield Objection(part, f"{show(domain)} is code", "give a domain, such as tune.uniform(0, 1)")
        return
    wanted, found = (normalise({"x": each})["x"] for each in (domain, there))
    if wanted != found:
        has = "has no domain of it" if found is None else f"has {show(found)}"
        problem = f"explores {show(wanted)}, and param_space {has}"
        yield Objection(part, problem, "give it the same domain in both")


def _object_to_bounds(name: str, bounds: Any, param_space: Mapping[str, Any]) -> Iterator[Objection]:
    """Object unless what is explored between bounds is such a number in the space, with the same bounds."""
    part, fix = f"hyperparam_bounds.{name}", "give param_space a domain of numbers between these bounds"
    try:
        ((_, domain),) = bounded_leaves(normalise(param_space), (name,))
    except KeyError:
        yield Objection(part, "param_space has no number of that name between bounds", fix)
        return
    ends = (domain.lower, domain.upper) if isinstance(domain, Float) else (domain.low, domain.high)
    # Of whole numbers, Ray's domains leave their upper bound out.
    allowed = [ends] if isinstance(domain, Float) else [ends, (ends[0], ends[1] + 1)]
    if tuple(bounds) not in allowed:
        problem = f"explores {show(list(bounds))}, and param_space has {show(list(ends))}"
        yield Objection(part, problem, fix)
