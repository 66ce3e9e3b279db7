"""The spec, boiled down to what the core looks at for every report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from raysweep.schedulers import TRAINING_ITERATION, Judge, Scheduler, make_judge
from raysweep.search.options import TRIAL_TIME, CostRule
from raysweep.space.amounts import Need
from raysweep.space.constraints import Constraint
from raysweep.specs import SweepSpec
from raysweep.specs.policies import BestCheckpoints, Plateau, TrialPatience, TrialPlateau, TrialWilcoxon

Limit = tuple[str, float | None, float | None, float | None]

UNRANKED: Final = "\0"
"""The metric of a sweep without one: no report has a value of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Derived from the spec, and from what its scheduler says of itself; never stored.

    `is_blind`: the searcher's configs do not depend on results, so they can be asked for ahead of need.
    `is_timed`: the clock can end the sweep or a trial.
    `has_end`: a deadline or a budget ends the sweep, so that it can plan towards its end.
    `budgets`: field of the spec, its limit, and how many seconds of one slot use it up.
    `use_per_slot_hour`: what one slot uses of what is counted (`cpu_hours`, `gpu_hours`, `cost`).
    `judge`: the function of `stop.trial_if`. `remembers_reports`: those of trials that run are kept.
    `configs_a_seed`: how many trials in a row share a seed, so that configs can be compared in pairs.
    `repeats`: how many trials in a row have the same config, each with another seed.
    `others`: of several metrics those after the first: name, and -1 where more is better, else 1.
    `limits`: name of a reported value, and where it ends the trial: at or above, above, below.
    `looks_at_order`: something follows from the order in which trials end: what is asked, stopped, or ended.
    `is_plain`: no report can end a trial (a scheduler without moves, no limits, no target, nothing about its
    progress), and none is better for another reason than its metric: only the last and the best one matter.
    `best_by`, `best_is_max`: what ranks a trial's checkpoints, where that is not the sweep's metric (empty).
    `keep_best`: how many of a trial's best checkpoints are kept; `keep_every`: every so-manyth is, too.
    `keep_top`: how many of the trials that are done keep checkpoints.
    `falls_back`: a trial whose newest checkpoint is damaged resumes from the one before.
    `max_trials`: there will be no more than these; None where that cannot be told from the spec.
    `tells_rungs`: the search is told what trials had reached when they were compared; `tells_pauses`: when
    they paused.
    `logs_search`: in which order the search is asked and told is noted, as it may matter to that one.
    `compared`: the metric by which the scheduler compares trials, where that is another (empty: the sweep's).
    `needs`: what a trial needs by its config; empty: all need the same.
    `cost`: what the search takes for the cost of a trial; None: it does not ask.
    `named`: further values that the spec names and trials should report, each with its field.
    """

    metric: str
    is_max: bool
    others: tuple[tuple[str, float], ...]
    constraints: tuple[Constraint, ...]
    is_blind: bool
    looks_at_order: bool
    is_plain: bool
    is_timed: bool
    has_end: bool
    time_attr: str
    max_t: float | None
    limits: tuple[Limit, ...]
    target: float | None
    fails_on_non_finite: bool
    ranks_by_best: bool
    trial_time_s: float | None
    deadline: float | None
    time_budget_s: float | None
    budgets: tuple[tuple[str, float, float], ...]
    use_per_slot_hour: tuple[tuple[str, float], ...]
    plateau: Plateau | None
    trial_plateau: TrialPlateau | None
    trial_patience: TrialPatience | None
    trial_wilcoxon: TrialWilcoxon | None
    judge: Judge | None
    judges: bool
    remembers_reports: bool
    max_concurrent: int | None
    max_trials: int | None
    keep_last: int
    keep_best: int
    best_by: str
    best_is_max: bool
    keep_every: int | None
    keep_top: int | None
    falls_back: bool
    grace_s: float
    configs_a_seed: int
    repeats: int
    report_timeout_s: float | None
    placement_timeout_s: float
    logs_search: bool
    tells_rungs: bool
    tells_pauses: bool
    compared: str
    needs: tuple[Need, ...]
    cost: CostRule | None
    named: dict[str, str]

    @classmethod
    def of(cls, spec: SweepSpec, scheduler: Scheduler) -> Rules:
        """The rules of a spec under its scheduler.

        Raises:
            SpecError: the function of `stop.trial_if` was not loaded in this process (`load_scheduler`).
        """
        search, stop = spec.search.options, spec.stop
        limits = stop.trial_limits
        use = spec.use_per_slot_hour
        budgets = _budgets(spec, use)
        best = _best(spec)
        has_end = any((stop.deadline, stop.time_budget_s, budgets))
        is_blind = not search.is_adaptive
        repeats = spec.repeat.times if spec.repeat is not None else 1
        return cls(
            metric=spec.metric or UNRANKED,
            is_max=spec.mode == "max",
            others=tuple((name, -1.0 if mode == "max" else 1.0) for name, mode in spec.others.items()),
            constraints=spec.parsed_constraints,
            is_blind=is_blind,
            looks_at_order=(
                not is_blind
                or bool(scheduler.moves)
                or (stop.target, stop.plateau, spec.failure.max_failed_fraction) != (None, None, None)
                or stop.trial_wilcoxon is not None
                or (spec.repeat is not None and spec.repeat.race is not None)
            ),
            is_plain=(
                not (scheduler.moves or scheduler.max_t is not None or limits or spec.constraints)
                and (stop.target, stop.trial_plateau, stop.trial_patience) == (None, None, None)
                and (stop.trial_wilcoxon, stop.trial_if) == (None, None)
            ),
            is_timed=has_end or any((stop.trial_time_s, spec.failure.report_timeout_s)),
            has_end=has_end,
            time_attr=scheduler.time_attr,
            max_t=scheduler.max_t,
            limits=limits,
            target=stop.target,
            fails_on_non_finite=spec.failure.non_finite == "fail",
            ranks_by_best=spec.score == "best",
            trial_time_s=stop.trial_time_s,
            # A time of day becomes a moment when the sweep starts: the state holds it.
            deadline=stop.deadline.timestamp() if isinstance(stop.deadline, datetime) else None,
            time_budget_s=stop.time_budget_s,
            budgets=budgets,
            use_per_slot_hour=tuple(use.items()),
            plateau=stop.plateau,
            trial_plateau=stop.trial_plateau,
            trial_patience=stop.trial_patience,
            trial_wilcoxon=stop.trial_wilcoxon,
            judge=make_judge(spec),
            judges=any(
                (stop.trial_plateau, stop.trial_patience, stop.trial_wilcoxon, stop.trial_if is not None)
            ),
            remembers_reports=stop.trial_wilcoxon is not None or stop.trial_if is not None,
            max_concurrent=spec.max_concurrent_trials,
            max_trials=spec.num_samples * repeats if search.is_bounded and spec.num_samples else None,
            keep_last=spec.checkpoint.keep_last,
            keep_best=best.num if best is not None else 0,
            best_by=checkpoint_metric(spec),
            best_is_max=((best.mode if best is not None else None) or spec.mode) == "max",
            keep_every=spec.checkpoint.every_n,
            keep_top=spec.checkpoint.keep_top_k,
            falls_back=spec.checkpoint.on_damage == "fall_back",
            grace_s=stop.grace_s,
            configs_a_seed=search.configs_per_seed,
            repeats=repeats,
            report_timeout_s=spec.failure.report_timeout_s,
            placement_timeout_s=spec.failure.placement_timeout_s,
            logs_search=spec.search.is_plugin,
            tells_rungs=search.wants_rungs,
            tells_pauses=_tells_pauses(spec, scheduler),
            compared=_compared(spec),
            needs=spec.needs,
            cost=cost_rule(spec, scheduler),
            named=_named(spec),
        )

    def seed_number(self, trial: int) -> int:
        """Which of the sweep's seeds a trial gets."""
        return trial % self.repeats if self.repeats > 1 else trial // self.configs_a_seed


def cost_rule(spec: SweepSpec, scheduler: Scheduler) -> CostRule | None:
    """What is told of a trial's cost; where the scheduler may end it early, for each unit of its time."""
    name = spec.search.options.costs_by
    if name is None:
        return None
    return CostRule(name=name, per=scheduler.time_attr if scheduler.moves else "")


def _tells_pauses(spec: SweepSpec, scheduler: Scheduler) -> bool:
    """Whether the search is told of trials that pause; one of the user's own is told how they end."""
    search = spec.search
    learns_of_ends = search.options.is_adaptive and not search.options.wants_rungs
    return learns_of_ends and "pause" in scheduler.moves and not search.is_plugin


def _best(spec: SweepSpec) -> BestCheckpoints | None:
    best = spec.checkpoint.keep_best
    if isinstance(best, bool):
        return BestCheckpoints() if best else None
    return best


def checkpoint_metric(spec: SweepSpec) -> str:
    """What ranks a trial's checkpoints, where that is not the sweep's own metric; else empty."""
    best = _best(spec)
    metric = best.metric if best is not None else None
    return "" if metric is None or metric == spec.metric else metric


def _compared(spec: SweepSpec) -> str:
    """With several metrics also the first one, where the scheduler names it: it wants no other."""
    metric = spec.compared[0]
    comparing = spec.scheduler.comparing
    is_named = comparing is not None and comparing[1].metric is not None
    return metric if is_named and (metric != spec.metric or spec.others) else ""


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


def _budgets(spec: SweepSpec, use: dict[str, float]) -> tuple[tuple[str, float, float], ...]:
    budget = spec.stop.budget
    limits = (("cpu_hours", budget.cpu_hours), ("gpu_hours", budget.gpu_hours), ("cost", budget.cost))
    return tuple(
        (f"stop.budget.{name}", limit, limit / use[name] * 3600.0)
        for name, limit in limits
        if limit is not None and use[name] > 0.0
    )
