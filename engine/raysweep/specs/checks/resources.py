"""Checks of resources, of where trials run, and of the limits that count what slots use."""

from __future__ import annotations

from raysweep.documents.validation import Problem, show
from raysweep.space.where import check_amount
from raysweep.specs.sweep_fields import SweepFields
from raysweep.specs.sweep_parts import WorkerIsolation
from raysweep.specs.trial.resources import Resources


def check_scaling(spec: SweepFields) -> None:
    """See that trials which are gangs can be placed and run. Raises Problem."""
    if spec.scaling is None:
        return
    if spec.scaling.min_workers is not None:
        fix = "give one number, which each trial holds; the trainer's own ScalingConfig may have a range"
        raise Problem(
            "may not be a range in a sweep: a gang is placed whole or not at all",
            fix if spec.driver is not None else "give one number of workers",
            ("scaling", "num_workers"),
        )
    if spec.resources != Resources():
        raise Problem(
            "cannot be combined with scaling",
            "remove resources, and give what each worker takes as scaling.resources",
            ("resources",),
        )
    if spec.isolation == "inline" and spec.driver is None:
        raise Problem(
            "inline is one process, and a gang is several",
            "use worker, process (each trial in fresh processes) or actor",
            ("isolation",),
        )
    is_worker = spec.isolation == "worker" or isinstance(spec.isolation, WorkerIsolation)
    if is_worker and spec.scaling.backend == "tensorflow":
        raise Problem(
            "worker keeps processes from trial to trial, and TensorFlow's servers end only with theirs",
            "use process (the default with tensorflow), which imports TensorFlow once for all trials, or"
            " actor",
            ("isolation",),
        )


def check_driver(spec: SweepFields) -> None:
    """See that a trial can start its workers through Ray. Raises Problem."""
    if spec.driver is None or spec.isolation not in ("process", "inline"):
        return
    why = "a forked process has no Ray" if spec.isolation == "process" else "inline trials hold no resources"
    raise Problem(
        f"{why}, which scaling.driver needs: the trial starts its workers by it",
        "use worker, or actor (a fresh process for each trial)",
        ("isolation",),
    )


def check_by_config(spec: SweepFields) -> None:
    """See that what trials take by their configs follows from parameters. Raises Problem."""
    for need in spec.needs:
        check_amount(need.amount, spec.config_space, tuple(need.field.split(".")))
    if any(need.name != "memory" for need in spec.needs) and spec.stop.budget.model_dump(exclude_none=True):
        fix = "use stop.time_budget_s or stop.deadline, or leave by_config out"
        raise Problem(
            "cannot be combined with by_config: it counts slots of one size",
            fix,
            ("stop", "budget"),
        )


def check_end(spec: SweepFields) -> None:
    """See that something ends a sweep without a number of samples. Raises Problem."""
    if not spec.is_open_ended:
        return
    stop, use = spec.stop, spec.use_per_slot_hour
    budgets = stop.budget.model_dump(exclude_none=True)
    used_up = [name for name in budgets if use[name] > 0]
    if not any((stop.deadline, stop.time_budget_s, used_up, stop.target is not None, stop.plateau)):
        unused = f" (stop.budget.{next(iter(budgets))}: no trial uses any)" if budgets else ""
        raise Problem(
            f"null requires a limit in stop{unused}",
            "set stop.deadline, stop.time_budget_s, stop.budget, stop.target or stop.plateau, or a number",
            ("num_samples",),
        )
    if spec.scheduler.options.is_population:
        raise Problem(
            f"null cannot be combined with scheduler: {spec.scheduler.kind}, whose population has a size",
            "set a number of samples, or another scheduler",
            ("num_samples",),
        )


def check_isolation(spec: SweepFields) -> None:
    """See that inline trials run one at a time, and that a growing cluster has a limit. Raises Problem."""
    if spec.isolation == "inline" and spec.max_concurrent_trials != 1:
        raise Problem(
            f"isolation: inline runs one trial at a time (got {show(spec.max_concurrent_trials)})",
            "set max_concurrent_trials: 1, or another isolation",
            ("max_concurrent_trials",),
        )
    if spec.isolation == "inline" and spec.resources.pin_cpus:
        why = "cannot be combined with isolation: inline, which runs trials in the process of the sweep"
        raise Problem(why, "leave it out, or choose another isolation", ("resources", "pin_cpus"))
    if spec.autoscaled and spec.max_concurrent_trials is None:
        raise Problem(
            "requires max_concurrent_trials, which limits the cluster's growth",
            "set max_concurrent_trials to the number of trials to run at once",
            ("autoscaled",),
        )


def check_share(spec: SweepFields) -> None:
    """See that there are slots to share, of a cluster with a size. Raises Problem."""
    if spec.share is None:
        return
    if spec.isolation == "inline":
        problem = "an inline sweep takes nothing of the cluster, so it has nothing to share"
        raise Problem(problem, "leave share out, or choose another isolation", ("share",))
    if spec.autoscaled:
        problem = "cannot be combined with autoscaled: a cluster that grows has no size to divide"
        raise Problem(problem, "leave one of them out", ("share",))
