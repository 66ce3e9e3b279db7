"""The parts of the compiled spec (`compiled_spec.Rules`), one for each subject.

Each part is derived from the spec and from what its scheduler says of itself. None is ever stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from raysweep.schedulers import Judge, Scheduler, make_judge
from raysweep.search.options import CostRule
from raysweep.space.amounts import Need
from raysweep.space.constraints import Constraint
from raysweep.space.scales import Scale
from raysweep.specs import SweepSpec
from raysweep.specs.policies import BestCheckpoints, Plateau, TrialPatience, TrialPlateau, TrialWilcoxon

Limit = tuple[str, float | None, float | None, float | None]
"""Name of a reported value, and where it ends the trial: at or above, above, below."""

UNRANKED: Final = "\0"
"""The metric of a sweep without one: no report has a value of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The reported values that rank and compare trials."""

    metric: str
    """The metric that ranks trials; the first one where there are several."""
    is_max: bool
    """True if more of the metric is better."""
    others: tuple[tuple[str, float], ...]
    """The metrics after the first: name, and -1 where more is better, else 1."""
    constraints: tuple[Constraint, ...]
    """Bounds that the best trial must satisfy."""
    ranks_by_best: bool
    """True if a trial's best report ranks it; else its last one does."""
    time_attr: str
    """The reported value that is the scheduler's unit of time."""
    compared: str
    """The metric by which the scheduler compares trials, where that is another; else empty."""
    scales: tuple[Scale, ...]
    """The scales of trials, the smallest first, where there are several: the best is one of the largest."""

    @classmethod
    def of(cls, spec: SweepSpec, scheduler: Scheduler) -> Objective:
        """The values that a spec and its scheduler name."""
        return cls(
            metric=spec.metric or UNRANKED,
            is_max=spec.mode == "max",
            others=tuple((name, -1.0 if mode == "max" else 1.0) for name, mode in spec.others.items()),
            constraints=spec.parsed_constraints,
            ranks_by_best=spec.score == "best",
            time_attr=scheduler.time_attr,
            compared=_compared(spec),
            scales=spec.proxy_scales if spec.has_several_scales else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """Limits on one trial, and how it is ended at one."""

    max_t: float | None
    """The time of the scheduler's unit at which a trial is complete."""
    values: tuple[Limit, ...]
    """Limits on reported values (`stop.trial`)."""
    trial_time_s: float | None
    """Seconds that one attempt may run."""
    report_timeout_s: float | None
    """Seconds that a running trial may be silent."""
    fails_on_non_finite: bool
    """True if NaN or infinity as the metric fails the trial."""
    grace_s: float
    """Seconds that a trial may take to end once it is asked to."""

    @classmethod
    def of(cls, spec: SweepSpec, scheduler: Scheduler) -> TrialLimits:
        """The limits of a spec and its scheduler."""
        return cls(
            max_t=scheduler.max_t,
            values=spec.stop.trial_limits,
            trial_time_s=spec.stop.trial_time_s,
            report_timeout_s=spec.failure.report_timeout_s,
            fails_on_non_finite=spec.failure.non_finite == "fail",
            grace_s=spec.stop.grace_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStoppers:
    """Rules that end a trial by the course of its reports."""

    plateau: TrialPlateau | None
    """Ends a trial whose newest reports hardly differ."""
    patience: TrialPatience | None
    """Ends a trial that has not improved for a number of reports."""
    wilcoxon: TrialWilcoxon | None
    """Stops a trial whose reports are worse than those of the best one."""
    judge: Judge | None
    """The function of `stop.trial_if`."""
    are_any: bool
    """True if there is any of these."""
    remember_reports: bool
    """True if the reports of running trials are kept."""

    @classmethod
    def of(cls, spec: SweepSpec) -> TrialStoppers:
        """The stoppers of a spec.

        Raises:
            SpecError: the function of `stop.trial_if` was not loaded in this process (`load_scheduler`).
        """
        stop = spec.stop
        remember_reports = stop.trial_wilcoxon is not None or stop.trial_if is not None
        return cls(
            plateau=stop.trial_plateau,
            patience=stop.trial_patience,
            wilcoxon=stop.trial_wilcoxon,
            judge=make_judge(spec),
            are_any=bool(stop.trial_plateau or stop.trial_patience or remember_reports),
            remember_reports=remember_reports,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLimits:
    """Limits that end the whole sweep."""

    has_end: bool
    """True if a deadline or a budget ends the sweep, so that it can plan towards its end."""
    deadline: float | None
    """UTC seconds. A time of day becomes a moment when the sweep starts: the state holds it."""
    time_budget_s: float | None
    """Seconds that controllers may be at work."""
    budgets: tuple[tuple[str, float, float], ...]
    """Field of the spec, its limit, and how many seconds of one slot use it up."""
    use_per_slot_hour: tuple[tuple[str, float], ...]
    """The use of one slot per hour, of what is counted (`cpu_hours`, `gpu_hours`, `cost`)."""
    target: float | None
    """The value of the metric that ends the sweep."""
    plateau: Plateau | None
    """Ends a sweep whose completed trials bring no gain any more."""

    @classmethod
    def of(cls, spec: SweepSpec) -> SweepLimits:
        """The limits of a spec."""
        stop, use = spec.stop, spec.use_per_slot_hour
        budgets = _budgets(spec, use)
        return cls(
            has_end=any((stop.deadline, stop.time_budget_s, budgets)),
            deadline=stop.deadline.timestamp() if isinstance(stop.deadline, datetime) else None,
            time_budget_s=stop.time_budget_s,
            budgets=budgets,
            use_per_slot_hour=tuple(use.items()),
            target=stop.target,
            plateau=stop.plateau,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRules:
    """The checkpoints that stay."""

    keep_last: int
    """The number of a trial's newest checkpoints that are kept."""
    keep_best: int
    """The number of a trial's best checkpoints that are kept."""
    best_by: str
    """The value that ranks a trial's checkpoints, where that is not the metric; else empty."""
    best_is_max: bool
    """True if a checkpoint with more of that value is better."""
    keep_every: int | None
    """Each checkpoint whose count is a multiple of this is kept."""
    keep_top: int | None
    """The number of done trials that keep checkpoints; None: all do."""
    falls_back: bool
    """True if a trial whose newest checkpoint is damaged resumes from the one before."""

    @classmethod
    def of(cls, spec: SweepSpec) -> CheckpointRules:
        """The checkpoint policy of a spec."""
        best = _best(spec)
        return cls(
            keep_last=spec.checkpoint.keep_last,
            keep_best=best.num if best is not None else 0,
            best_by=checkpoint_metric(spec),
            best_is_max=((best.mode if best is not None else None) or spec.mode) == "max",
            keep_every=spec.checkpoint.every_n,
            keep_top=spec.checkpoint.keep_top_k,
            falls_back=spec.checkpoint.on_damage == "fall_back",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """The asks to the search, and the results that it receives."""

    is_blind: bool
    """True if configs do not depend on results, so that they can be asked for ahead of need."""
    max_trials: int | None
    """There will be no more trials than these; None where that cannot be told from the spec."""
    repeats: int
    """The number of trials in a row that have the same config, each with another seed."""
    configs_a_seed: int
    """The number of trials in a row that share a seed, so that configs can be compared in pairs."""
    is_logged: bool
    """True if the order of asks and results is noted, as it may matter to this search."""
    tells_rungs: bool
    """True if the search receives the values of trials when they were compared."""
    tells_pauses: bool
    """True if the search receives the values of trials when they paused."""
    cost: CostRule | None
    """The cost of a trial for the search; None: it does not ask."""

    @classmethod
    def of(cls, spec: SweepSpec, scheduler: Scheduler) -> SearchRules:
        """The rules of a spec's search under its scheduler."""
        options = spec.search.options
        repeats = spec.repeat.times if spec.repeat is not None else 1
        return cls(
            is_blind=not (options.is_adaptive or spec.has_several_scales),
            max_trials=spec.num_samples * repeats if options.is_bounded and spec.num_samples else None,
            repeats=repeats,
            configs_a_seed=options.configs_per_seed,
            is_logged=spec.search.is_plugin,
            tells_rungs=options.wants_rungs,
            tells_pauses=_tells_pauses(spec, scheduler),
            cost=cost_rule(spec, scheduler),
        )

    def seed_number(self, trial: int) -> int:
        """The number of the sweep's seed that a trial gets."""
        return trial % self.repeats if self.repeats > 1 else trial // self.configs_a_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRules:
    """The number of slots that there may be, and the needs of trials."""

    max_concurrent: int | None
    """The number of slots that there may be; None: as many as the cluster has room for."""
    placement_timeout_s: float
    """Seconds that a sweep waits for room for a trial."""
    needs: tuple[Need, ...]
    """The needs of a trial by its config; empty: all need the same."""

    @classmethod
    def of(cls, spec: SweepSpec) -> SlotRules:
        """The slots of a spec."""
        return cls(
            max_concurrent=spec.max_concurrent_trials,
            placement_timeout_s=spec.failure.placement_timeout_s,
            needs=spec.needs,
        )


def cost_rule(spec: SweepSpec, scheduler: Scheduler) -> CostRule | None:
    """The cost of a trial; where the scheduler may end it early, for each unit of its time."""
    name = spec.search.options.costs_by
    if name is None:
        return None
    return CostRule(name=name, per=scheduler.time_attr if scheduler.moves else "")


def checkpoint_metric(spec: SweepSpec) -> str:
    """The value that ranks a trial's checkpoints, where that is not the sweep's own metric; else empty."""
    best = _best(spec)
    metric = best.metric if best is not None else None
    return "" if metric is None or metric == spec.metric else metric


def _tells_pauses(spec: SweepSpec, scheduler: Scheduler) -> bool:
    """True if the search receives trials that pause; a user's search receives their ends."""
    search = spec.search
    learns_of_ends = search.options.is_adaptive and not search.options.wants_rungs
    return learns_of_ends and "pause" in scheduler.moves and not search.is_plugin


def _best(spec: SweepSpec) -> BestCheckpoints | None:
    best = spec.checkpoint.keep_best
    if isinstance(best, bool):
        return BestCheckpoints() if best else None
    return best


def _compared(spec: SweepSpec) -> str:
    """With several metrics also the first one, where the scheduler names it: it wants no other."""
    metric = spec.compared[0]
    comparing = spec.scheduler.comparing
    is_named = comparing is not None and comparing[1].metric is not None
    return metric if is_named and (metric != spec.metric or spec.others) else ""


def _budgets(spec: SweepSpec, use: dict[str, float]) -> tuple[tuple[str, float, float], ...]:
    budget = spec.stop.budget
    limits = (("cpu_hours", budget.cpu_hours), ("gpu_hours", budget.gpu_hours), ("cost", budget.cost))
    return tuple(
        (f"stop.budget.{name}", limit, limit / use[name] * 3600.0)
        for name, limit in limits
        if limit is not None and use[name] > 0.0
    )
