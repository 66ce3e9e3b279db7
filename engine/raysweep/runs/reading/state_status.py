"""The standing of a sweep without an outcome, by its state: a `Standing`.

A module of its own, as most looks are at sweeps that have ended, and need no core.
"""

from __future__ import annotations

from typing import Final

from raysweep.core.handlers.sweep_end import end_in_sight
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial, trial_id
from raysweep.core.views.result import best_shown, trial_outcome
from raysweep.core.views.scores import ahead_of_all, may_be_best, place, ranked, score_of
from raysweep.documents.json_numbers import Counts
from raysweep.numeric.pareto import find_front, front_first
from raysweep.outcome import Standing, SweepProgress
from raysweep.outcome.curve import best_so_far
from raysweep.outcome.estimate import NOTHING, Expected
from raysweep.outcome.progress import HolderState
from raysweep.outcome.ranking import is_standing
from raysweep.outcome.standing import FAILURES, INTERRUPTED, MAX_NOTES, MAX_PARETO, STARTING, TOP
from raysweep.runs.ownership.holder import holder_state

_MIN_ENDED: Final = 3
"""With fewer ended trials no pace is shown."""


def status_of_state(
    state: SweepState,
    heartbeat: SweepProgress | None,
    *,
    uri: str,
    key: str = "",
    now: float,
    held: HolderState | None = None,
    notes: tuple[str, ...] = (),
    expected: Expected = NOTHING,
) -> Standing:
    """Of a sweep without an outcome: its state, and its heartbeat if there is one.

    `held`: what became of its holder, where that is known better than by the heartbeat's time.

    Held by one that lives, and without a heartbeat, it is starting.
    """
    held = held if held is not None else holder_state(heartbeat, now)
    trials = state.trials.values()
    counts = Counts.of(state.line.counts)
    num_trials = heartbeat.num_trials if heartbeat is not None else None
    curve, dots = best_so_far(
        (
            (
                trial.ended_at,
                trial.state,
                score_of(state, trial) if _counts(state, trial) else None,
                trial_id(trial.number),
            )
            for trial in trials
        ),
        is_max=state.rules.objective.is_max,
    )
    found, on_front = _front_first(state)
    best = best_shown(state)
    ahead = ahead_of_all(state) if best is None else None
    # Only those that are shown are made into outcomes: there may be ten thousand.
    top = tuple(trial_outcome(state, trial, uri) for trial in found[:TOP])
    failed = sorted((t for t in trials if t.state == "failed"), key=lambda trial: -(trial.ended_at or 0.0))
    return Standing(
        run_id=uri.rpartition("/")[2],
        name=state.spec.name,
        uri=uri,
        key=key,
        status=_status(state, heartbeat, held),
        why=state.end.why if state.phase == "ended" else "",
        reason=state.end.why if state.phase == "ended" else "",
        trainable=state.spec.what_runs,
        metric=state.spec.metric,
        mode=state.spec.mode,
        others=state.spec.others,
        pareto=tuple(trial_id(trial.number) for trial in on_front[:MAX_PARETO]),
        pareto_size=len(on_front),
        constraints=state.spec.constraints,
        counts=counts,
        num_trials=num_trials,
        best=trial_outcome(state, best, uri) if best is not None else None,
        ahead=trial_outcome(state, ahead, uri) if ahead is not None else None,
        curve=curve,
        dots=dots,
        top=top,
        failures=tuple(trial_outcome(state, trial, uri) for trial in failed[:FAILURES]),
        first_failure=trial_outcome(state, min(failed, key=lambda trial: trial.number), uri)
        if failed
        else None,
        started_at=state.clock.started_at,
        deadline=state.clock.deadline_at,
        expected_end_at=_end_of(expected, state, counts.ended, num_trials, now) if held == "alive" else None,
        estimate=expected.estimate,
        slow=expected.slow,
        generation=state.controller.generation,
        notes=(*state.notes[-MAX_NOTES:], *notes),
        heartbeat=heartbeat,
        held=held,
        read_at=now,
    )


def _front_first(state: SweepState) -> tuple[list[Trial], list[Trial]]:
    """All trials that have a score, of several metrics the front first; and the front of ended ones."""
    found = ranked(state)
    if not state.rules.objective.others:
        return found, []
    first = [trial for trial in found if may_be_best(state, trial)]
    points = [place(state, trial)[3] for trial in first]
    found[: len(first)] = [first[number] for number in front_first(points)]
    ended = [trial for trial in first if _counts(state, trial)]
    return found, [ended[number] for number in find_front([place(state, trial)[3] for trial in ended])]


def _counts(state: SweepState, trial: Trial) -> bool:
    return is_standing(trial.state, state.end.status) and may_be_best(state, trial)


def _status(state: SweepState, heartbeat: SweepProgress | None, held: HolderState) -> str:
    if held == "alive":
        return heartbeat.status if heartbeat is not None else STARTING
    return state.end.status if state.phase == "ended" and state.end.status else INTERRUPTED


def _end_of(
    expected: Expected, state: SweepState, ended: int, num_trials: int | None, now: float
) -> float | None:
    if expected.estimate is not None:
        return expected.estimate.end_at.expected
    return _expected_end(state, ended, num_trials, now)


def _expected_end(state: SweepState, ended: int, num_trials: int | None, now: float) -> float | None:
    """By the pace of this sweep so far (its pauses do not count), or by the limit that is to end it."""
    if state.spec.is_open_ended and num_trials is None:
        end_by_limit = end_in_sight(state)
        return end_by_limit.at if end_by_limit is not None else None
    if num_trials is None or ended < _MIN_ENDED or ended >= num_trials:
        return None
    end = now + state.controller.active_s(now) / ended * (num_trials - ended)
    return end if state.clock.deadline_at is None else min(end, state.clock.deadline_at)
