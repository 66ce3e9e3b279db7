"""The spec, boiled down to what the core looks at for every report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raysweep.spec import AshaOptions, SweepSpec

TRAINING_ITERATION: Final = "training_iteration"
_BLIND_SEARCHES: Final = frozenset({"random", "grid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Derived from the spec alone; never stored.

    `is_blind`: the searcher's configs do not depend on results, so they can be asked for ahead of need.
    `is_timed`: the clock can end the sweep or a trial.
    `is_plain`: no report can end a trial (FIFO, no limits, no target): only the last and the best one matter.
    `max_trials`: there will be no more than these; None where that cannot be told from the spec.
    """

    metric: str
    is_max: bool
    is_blind: bool
    is_plain: bool
    is_timed: bool
    time_attr: str
    max_t: float | None
    limits: tuple[tuple[str, float], ...]
    target: float | None
    fails_on_non_finite: bool
    ranks_by_best: bool
    trial_time_s: float | None
    deadline: float | None
    time_budget_s: float | None
    max_concurrent: int | None
    max_trials: int | None
    keep_last: int
    keep_best: bool
    grace_s: float
    report_timeout_s: float | None
    placement_timeout_s: float

    @classmethod
    def of(cls, spec: SweepSpec) -> Rules:
        """The rules of a spec."""
        options, stop = spec.scheduler.options, spec.stop
        asha = options if isinstance(options, AshaOptions) else None
        limits = tuple(stop.trial.items())
        is_blind = spec.search.kind in _BLIND_SEARCHES
        return cls(
            metric=spec.metric,
            is_max=spec.mode == "max",
            is_blind=is_blind,
            is_plain=asha is None and not limits and stop.target is None,
            is_timed=any(
                (stop.deadline, stop.time_budget_s, stop.trial_time_s, spec.failure.report_timeout_s)
            ),
            time_attr=asha.time_attr if asha else TRAINING_ITERATION,
            max_t=float(asha.max_t) if asha else None,
            limits=limits,
            target=stop.target,
            fails_on_non_finite=spec.failure.non_finite == "fail",
            ranks_by_best=spec.score == "best",
            trial_time_s=stop.trial_time_s,
            deadline=stop.deadline.timestamp() if stop.deadline else None,
            time_budget_s=stop.time_budget_s,
            max_concurrent=spec.max_concurrent_trials,
            # A grid among random parameters multiplies the samples; other searches take no grid.
            max_trials=None if is_blind else spec.num_samples,
            keep_last=spec.checkpoint.keep_last,
            keep_best=spec.checkpoint.keep_best,
            grace_s=stop.grace_s,
            report_timeout_s=spec.failure.report_timeout_s,
            placement_timeout_s=spec.failure.placement_timeout_s,
        )
