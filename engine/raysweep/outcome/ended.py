"""The standing of a run that has ended, from its outcome."""

from __future__ import annotations

from heapq import nsmallest

from raysweep.outcome.curve import best_so_far
from raysweep.outcome.standing import FAILURES, MAX_NOTES, MAX_PARETO, TOP, Standing, first_values
from raysweep.outcome.sweep import SweepOutcome
from raysweep.outcome.train import TrainOutcome
from raysweep.outcome.trials import rows_of


def status_of_outcome(outcome: SweepOutcome, *, uri: str = "", now: float) -> Standing:
    """Of a sweep that has ended."""
    on_front = outcome.pareto if outcome.others else ()
    curve, dots = best_so_far(
        (
            (trial.ended_at, trial.state, trial.score if outcome.may_be_best(trial) else None, trial.trial_id)
            for trial in rows_of(outcome.trials)
        ),
        is_max=outcome.mode == "max",
    )
    attempts, trial_s, failed = _work(outcome)
    return Standing(
        run_id=outcome.sweep_id,
        name=outcome.name,
        uri=uri or outcome.uri,
        key=outcome.key,
        status=outcome.status,
        has_ended=True,
        why=outcome.why,
        reason=outcome.reason,
        metric=outcome.metric,
        mode=outcome.mode,
        others=outcome.others,
        pareto=tuple(trial.trial_id for trial in on_front[:MAX_PARETO]),
        pareto_size=len(on_front),
        constraints=outcome.constraints,
        counts=outcome.counts,
        num_trials=outcome.wanted_trials,
        attempts=attempts,
        trial_s=trial_s,
        best=outcome.found_best,
        curve=curve,
        dots=dots,
        top=outcome.top(TOP),
        failures=tuple(outcome.trials[index] for _, index in nsmallest(FAILURES, failed)),
        first_failure=outcome.trials[min(index for _, index in failed)] if failed else None,
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        generation=outcome.generation,
        usage=outcome.usage,
        gate=outcome.gate,
        error=outcome.error,
        notes=outcome.notes[-MAX_NOTES:],
        read_at=now,
    )


def _work(outcome: SweepOutcome) -> tuple[int, float, list[tuple[float, int]]]:
    """Attempts of all trials, their seconds, and the failed trials: (when it ended, negated; place)."""
    attempts, trial_s, failed = 0, 0.0, []
    for index, row in enumerate(rows_of(outcome.trials)):
        attempts += len(row.attempts)
        for each in row.attempts:
            trial_s += each.took_s or 0.0
        if row.state == "failed":
            failed.append((-(row.ended_at or 0.0), index))
    return attempts, trial_s, failed


def status_of_training(outcome: TrainOutcome, *, uri: str, now: float) -> Standing:
    """Of a training run that has ended."""
    return Standing(
        kind="train",
        run_id=outcome.run_id,
        name=outcome.name,
        uri=uri,
        key=outcome.key,
        status=outcome.status,
        has_ended=True,
        counts={"reports": outcome.history[-1].iteration if outcome.history else 0},
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        why=outcome.error.line if outcome.error is not None else outcome.ended_by,
        config=first_values(outcome.metrics),
        usage=outcome.usage,
        of=outcome.source.sweep.rstrip("/").rpartition("/")[2] if outcome.source is not None else "",
        predicted=outcome.predicted,
        training=outcome,
        error=outcome.error,
        read_at=now,
    )
