"""The heartbeat of a running sweep, made of its state: `progress.json`, and what `on_progress` is given."""

from __future__ import annotations

from typing import Literal

from raysweep.core.handlers.sweep_end import end_in_sight
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial, trial_id
from raysweep.core.views.result import best_shown
from raysweep.core.views.scores import ahead_of_all, score_of
from raysweep.core.vocabulary.commands import SweepStatus
from raysweep.documents.json_numbers import Counts
from raysweep.outcome import BestTrial, Holder, RunningTrial, SweepProgress
from raysweep.outcome.standing import MAX_NOTES

ProgressStatus = Literal["starting", "running", "stopping"] | SweepStatus
MAX_RUNNING = 100


def make_progress(
    state: SweepState, *, sweep_id: str, holder: Holder, at: float, total: int | None
) -> SweepProgress:
    """The state of a sweep, as much as is worth showing."""
    clock = state.clock
    best = best_shown(state)
    end = end_in_sight(state) if total is None and state.phase == "running" else None
    return SweepProgress(
        sweep_id=sweep_id,
        name=state.spec.name,
        status=_status(state),
        holder=holder,
        generation=state.controller.generation,
        at=at,
        started_at=clock.started_at if clock.started_at is not None else at,
        counts=Counts.of(state.line.counts),
        num_trials=total,
        metric=state.spec.metric,
        mode=state.spec.mode,
        others=state.spec.others,
        constraints=state.spec.constraints,
        best=_shown(state, best),
        ahead=_shown(state, ahead_of_all(state)) if best is None else None,
        running=_running(state),
        slots=sum(slot.is_open for slot in state.slots.values()),
        opening=sum(not slot.is_open for slot in state.slots.values()),
        shared=_shared(state),
        deadline=clock.deadline_at,
        expected_end_at=end.at + clock.ahead_s if end is not None else None,
        notes=(*state.notes[-MAX_NOTES:], *([state.end.why] if state.end.is_interrupted else [])),
    )


def _shown(state: SweepState, trial: Trial | None) -> BestTrial | None:
    if trial is None:
        return None
    return BestTrial(
        trial_id=trial_id(trial.number),
        score=score_of(state, trial) or 0.0,
        config=trial.config,
        metrics=trial.results.last,
    )


def _shared(state: SweepState) -> str:
    room = state.room
    if room.share is None or state.phase != "running":
        return ""
    beside = "1 sweep" if room.beside == 1 else f"{room.beside} sweeps"
    return f"{room.share} of {room.capacity} slots ({beside} beside it)"


def _status(state: SweepState) -> ProgressStatus:
    if state.end.is_interrupted:
        return "stopping"
    if state.phase == "running":
        return "running" if state.trials else "starting"
    return (state.end.status if state.phase == "ended" else None) or "stopping"


def _running(state: SweepState) -> tuple[RunningTrial, ...]:
    heads = sorted(slot.queue[0] for slot in state.slots.values() if slot.queue)
    return tuple(
        RunningTrial(
            trial_id=trial_id(number),
            number=number,
            config=state.trials[number].config,
            iteration=state.trials[number].results.iteration,
            score=score_of(state, state.trials[number]),
            started_at=_by_wall_clock(state, state.trials[number].attempt_started_at),
        )
        for number in heads[:MAX_RUNNING]
    )


def _by_wall_clock(state: SweepState, at: float | None) -> float | None:
    return None if at is None else at + state.clock.ahead_s
