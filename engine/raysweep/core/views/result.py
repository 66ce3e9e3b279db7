"""The outcome of a sweep, made of its state."""

from __future__ import annotations

from typing import Final

from raysweep.core.handlers.repeats import Group, best_trial, ranked_groups
from raysweep.core.handlers.sweep_end import usage, wanted_trials
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial, trial_id
from raysweep.core.state.trial_parts import Attempt
from raysweep.core.views.scores import (
    best_ranked,
    first_ranked,
    larger_scales,
    may_be_best,
    score_of,
    violations,
)
from raysweep.core.vocabulary.failures import Failure
from raysweep.core.vocabulary.lifecycle import FINAL, Cause
from raysweep.documents.stored_paths import to_uri
from raysweep.errors import RaysweepError
from raysweep.numeric.shown import show_number
from raysweep.outcome import (
    AttemptOutcome,
    ConfigOutcome,
    EndedBy,
    ErrorInfo,
    SweepOutcome,
    SweepStatus,
    TrialOutcome,
    Trials,
    UnfinishedStatus,
    Usage,
    show_infeasible,
)
from raysweep.outcome.record import without_collector
from raysweep.search.machinery.repeat import without_seed
from raysweep.space.held_tuples import tuples_of
from raysweep.specs.scheduled_config import ScheduledConfig

# What a person calls the causes in the lifecycle table.
_ENDS: Final[dict[Cause, str]] = {
    "returned": "completed",
    "reached": "completed",
    "halted": "stopped",
    "retried": "failed",
    "gave_up": "failed",
    "lost": "lost",
    "cut": "cancelled",
    "kept": "interrupted",
    "moved": "preempted",
    "paused": "paused",
    "resumed": "paused",
    "exploited": "exploited",
    "went_back": "went back",
    "fell_back": "failed",
}


def make_outcome(state: SweepState, *, sweep_id: str, key: str, uri: str, version: str) -> SweepOutcome:
    """The outcome after the end: the best trial, every trial, and the reason for the end.

    Raises:
        RaysweepError: the sweep has not ended.
    """
    end, clock = state.end, state.clock
    if end.status is None or clock.started_at is None or clock.ended_at is None:
        raise RaysweepError(f"sweep {sweep_id} has not ended")
    ended_at = clock.ended_at + max(0.0, clock.ahead_s)
    outcome = outcome_so_far(
        state, sweep_id=sweep_id, key=key, uri=uri, version=version, status=end.status, until=clock.ended_at
    )
    return outcome.model_copy(update={"ended_at": ended_at})


def outcome_so_far(
    state: SweepState,
    *,
    sweep_id: str,
    key: str,
    uri: str,
    version: str,
    status: SweepStatus | UnfinishedStatus,
    until: float,
) -> SweepOutcome:
    """The same of a sweep at any moment, with this status; `until`: when it was last seen, in UTC seconds."""
    end, clock = state.end, state.clock
    best = best_shown(state)
    with without_collector():
        trials = Trials.packed((trial_outcome(state, trial, uri) for trial in state.trials.values()), uri)
    return SweepOutcome(
        sweep_id=sweep_id,
        name=state.spec.name,
        key=key,
        status=status,
        why=explain(state),
        reason=end.why,
        ended_by=EndedBy.model_validate(end.by) if end.by else None,
        usage=Usage(**usage(state, until)),
        min_trials=state.spec.stop.min_trials,
        metric=state.spec.metric,
        mode=state.spec.mode,
        others=state.spec.others,
        constraints=state.spec.constraints,
        best=trial_outcome(state, best, uri) if best else None,
        trials=trials,
        tuples=tuples_of(state.spec.param_space),
        configs=_configs(state),
        num_trials=num_trials(state),
        is_open_ended=state.spec.is_open_ended,
        counts={name: number for name, number in sorted(state.line.counts.items()) if number},
        seed=state.seed,
        started_at=clock.started_at if clock.started_at is not None else until,
        ended_at=until,
        uri=uri,
        generation=state.controller.generation,
        error=_first_error(state, uri) if end.status == "failed" else None,
        spec_digest=state.spec.digest(),
        code_digest=state.controller.code,
        raysweep_version=version,
        notes=state.notes,
    )


def explain(state: SweepState) -> str:
    """One sentence for a person: how many trials, why it ended, what the best is."""
    end = state.end
    ended = [trial for trial in state.trials.values() if trial.state in FINAL and trial.state != "cancelled"]
    counts = state.line.counts
    if end.by is not None and end.status in ("deadline", "budget", "plateau"):
        parts = [f"{_of_wanted(len(ended), num_trials(state))}, ended by {end.why}"]
    else:
        parts = [f"{_of_wanted(len(ended), num_trials(state))} ended"]
        parts.append(", ".join(f"{counts[name]} {name}" for name in sorted(counts) if counts[name]))
        parts.append(f"{end.status}: {end.why}" if end.status else "still running")
    best = best_shown(state)
    first = first_ranked(state) if best is None else None
    if first is not None and not may_be_best(state, first):
        nearest = trial_outcome(state, first, "")
        parts.append(show_infeasible(state.spec.constraints, nearest, state.spec.metric, state.spec.others))
    groups = ranked_groups(state) if state.rules.search.repeats > 1 else []
    if groups:
        parts.append(_show_group(state, groups[0]))
    elif best is not None:
        score = show_number(score_of(state, best))
        parts.append(f"best {state.spec.metric} {score} (trial {trial_id(best.number)})")
    return "; ".join(part for part in parts if part)


def best_shown(state: SweepState) -> Trial | None:
    """The best trial; with `repeat`, the best one of the best config."""
    groups = ranked_groups(state) if state.rules.search.repeats > 1 else []
    return best_trial(state, groups[0]) if groups else best_ranked(state)


def _show_group(state: SweepState, group: Group) -> str:
    spread = f" ± {show_number(group.std)}" if group.std is not None else ""
    of = f"{len(group.scores)} of {state.rules.search.repeats} repeats"
    return f"best {state.spec.metric} {show_number(group.mean)}{spread} (config {group.number}, {of})"


def _configs(state: SweepState) -> tuple[ConfigOutcome, ...]:
    repeat = state.spec.repeat
    if repeat is None:
        return ()
    return tuple(
        ConfigOutcome(
            number=group.number,
            config=without_seed(group.trials[0].config, repeat.seed_param),
            state=group.state,
            mean=group.mean,
            std=group.std,
            completed=len(group.scores),
            trials=tuple(trial.number for trial in group.trials),
            best=best_trial(state, group).number,
        )
        for group in ranked_groups(state)
    )


def _of_wanted(count: int, wanted: int | None) -> str:
    return f"{count} trials" if wanted is None else f"{count} of {wanted} trials"


def num_trials(state: SweepState) -> int | None:
    """The number of trials that were to run: those asked for, whether they have been drawn yet or not.

    None: as many as there was time for.
    """
    spec = state.spec
    if not state.search.is_exhausted and spec.is_open_ended:
        return None
    wanted = None if state.search.is_exhausted else wanted_trials(state)
    return max(len(state.trials), wanted or 0)


def trial_outcome(state: SweepState, trial: Trial, uri: str) -> TrialOutcome:
    """One trial as the outcome shows it; `uri`: of the sweep, below which its references lie."""
    results = trial.results
    is_final = trial.state in FINAL
    shown = trial.state if is_final or trial.state in ("pending", "running", "paused") else "pending"
    if trial.state == "stopping":
        shown = "running"
    checkpoint = trial.checkpoint
    failure = trial.attempts[-1] if trial.attempts and trial.state == "failed" else None
    return TrialOutcome(
        trial_id=trial_id(trial.number),
        number=trial.number,
        state=shown,
        config=trial.config,
        metrics=results.last,
        best_metrics=results.best,
        scale={name: trial.config[name] for name in state.spec.largest_scale if name in trial.config},
        larger_scales=larger_scales(state, trial),
        score=score_of(state, trial),
        violations={
            constraint.text: far
            for constraint, far in zip(
                state.rules.objective.constraints, violations(state, trial), strict=True
            )
        }
        if score_of(state, trial) is not None
        else {},
        reports=results.reports - results.overrun,
        overrun_reports=results.overrun,
        attempts=tuple(_attempt_outcome(attempt, uri) for attempt in trial.attempts),
        checkpoint_uri=to_uri(uri, checkpoint.uri) if checkpoint else None,
        max_t=trial.continued.max_t,
        started_at=trial.started_at,
        ended_at=trial.ended_at,
        error=_error_info(failure, uri) if failure else None,
        schedule=tuple(
            ScheduledConfig(start=start, config=config) for start, config in trial.ancestry.lineage
        ),
    )


def _attempt_outcome(attempt: Attempt, uri: str) -> AttemptOutcome:
    return AttemptOutcome(
        attempt=attempt.attempt,
        node=attempt.node,
        started_at=attempt.started_at if attempt.started_at is not None else attempt.ended_at,
        ended_at=attempt.ended_at,
        end=_ENDS[attempt.end],
        error=_error_info(attempt, uri),
        config=attempt.config,
        donor=attempt.donor,
    )


def _error_info(attempt: Attempt, uri: str) -> ErrorInfo | None:
    failure: Failure | None = attempt.failure
    if failure is None:
        return None
    return ErrorInfo(
        kind=attempt.kind or "worker_died",
        type=failure.type,
        message=failure.message,
        traceback=failure.traceback or None,
        traceback_uri=to_uri(uri, failure.traceback_uri) if failure.traceback_uri else None,
    )


def _first_error(state: SweepState, uri: str) -> ErrorInfo:
    for trial in state.trials.values():
        for attempt in trial.attempts:
            info = _error_info(attempt, uri)
            if trial.state == "failed" and info is not None:
                return info
    return ErrorInfo(
        kind=state.end.fault or "failed", type="SweepFailed", message=state.end.why, traceback=None
    )
