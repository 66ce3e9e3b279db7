"""The spec, boiled down to what the core looks at for every report."""

from __future__ import annotations

from dataclasses import dataclass

from raysweep.core.state.compiled_parts import (
    CheckpointRules,
    Objective,
    SearchRules,
    SlotRules,
    SweepLimits,
    TrialLimits,
    TrialStoppers,
    checkpoint_metric,
)
from raysweep.schedulers import TRAINING_ITERATION, Scheduler
from raysweep.search.options import TRIAL_TIME
from raysweep.specs import SweepSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Derived from the spec, and from what its scheduler says of itself; never stored."""

    objective: Objective
    """The reported values that rank and compare trials."""
    limits: TrialLimits
    """Limits on one trial."""
    stoppers: TrialStoppers
    """Rules that end a trial by the course of its reports."""
    ends: SweepLimits
    """Limits that end the whole sweep."""
    checkpoints: CheckpointRules
    """The checkpoints that stay."""
    search: SearchRules
    """The asks to the search, and the results that it receives."""
    slots: SlotRules
    """The number of slots that there may be, and the needs of trials."""
    looks_at_order: bool
    """True if the order in which trials end decides what is asked, stopped, or ended."""
    is_plain: bool
    """True if no report can end a trial, and the metric alone ranks reports: the last and the best matter."""
    is_timed: bool
    """True if the clock can end the sweep or a trial."""
    named: dict[str, str]
    """Further values that the spec names and trials should report, each with its field."""

    @classmethod
    def of(cls, spec: SweepSpec, scheduler: Scheduler) -> Rules:
        """The rules of a spec under its scheduler.

        Raises:
            SpecError: the function of `stop.trial_if` was not loaded in this process (`load_scheduler`).
        """
        limits, ends = TrialLimits.of(spec, scheduler), SweepLimits.of(spec)
        return cls(
            objective=Objective.of(spec, scheduler),
            limits=limits,
            stoppers=TrialStoppers.of(spec),
            ends=ends,
            checkpoints=CheckpointRules.of(spec),
            search=SearchRules.of(spec, scheduler),
            slots=SlotRules.of(spec),
            looks_at_order=_looks_at_order(spec, scheduler),
            is_plain=_is_plain(spec, scheduler),
            is_timed=ends.has_end or any((limits.trial_time_s, limits.report_timeout_s)),
            named=_named(spec),
        )


def _looks_at_order(spec: SweepSpec, scheduler: Scheduler) -> bool:
    stop = spec.stop
    return (
        spec.search.options.is_adaptive
        or spec.has_several_scales
        or bool(scheduler.moves)
        or (stop.target, stop.plateau, spec.failure.max_failed_fraction) != (None, None, None)
        or stop.trial_wilcoxon is not None
        or (spec.repeat is not None and spec.repeat.race is not None)
    )


def _is_plain(spec: SweepSpec, scheduler: Scheduler) -> bool:
    """A scheduler without moves, no limits, no target, no constraints, nothing about a trial's progress."""
    stop = spec.stop
    return (
        not (scheduler.moves or scheduler.max_t is not None or stop.trial_limits or spec.constraints)
        and (stop.target, stop.trial_plateau, stop.trial_patience) == (None, None, None)
        and (stop.trial_wilcoxon, stop.trial_if) == (None, None)
    )


def reported_names(spec: SweepSpec) -> tuple[str, ...]:
    """The names of all values that a spec looks for in reports; not those in constraints."""
    time_attr = getattr(spec.scheduler.options, "time_attr", TRAINING_ITERATION)
    names = dict.fromkeys((*spec.objectives, spec.compared[0], time_attr, *_named(spec)))
    return tuple(name for name in names if name)


def _named(spec: SweepSpec) -> dict[str, str]:
    """None that the engine itself reports, or without which no trial has a score."""
    plateau, cost = spec.stop.trial_plateau, spec.search.options.costs_by
    named = {name: "stop.trial" for name, *_ in spec.stop.trial_limits}
    named[checkpoint_metric(spec)] = "checkpoint.keep_best.metric"
    if plateau is not None and plateau.metric is not None:
        named[plateau.metric] = "stop.trial_plateau.metric"
    if cost is not None and cost != TRIAL_TIME:
        named[cost] = f"search.{spec.search.kind}.cost_attr"
    known = ("", TRAINING_ITERATION, *spec.objectives)
    return {name: field for name, field in named.items() if name not in known}
