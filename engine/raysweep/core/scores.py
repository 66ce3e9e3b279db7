"""Ranking: which report counts for a trial, and which trial is the best."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from pydantic import JsonValue

from raysweep.core.state import SweepState
from raysweep.core.trial import Trial


def score_of(state: SweepState, trial: Trial) -> float | None:
    """The score that ranks a trial: its last reported metric, or its best, as the spec's `score` says."""
    return trial.best_score if state.rules.ranks_by_best else trial.last_score


def told_value(state: SweepState, trial: Trial) -> float | None:
    """What the searcher is told of a trial: nothing, where its results are those of another config."""
    return score_of(state, trial) if trial.suggested is None else None


def is_better(state: SweepState, score: float, other: float | None) -> bool:
    """Whether `score` beats `other`, strictly."""
    if other is None:
        return True
    return score > other if state.rules.is_max else score < other


def best_of(state: SweepState, trials: Iterable[Trial]) -> Trial | None:
    """The best trial that has a score; the lower number where two are equal."""
    best: Trial | None = None
    for trial in trials:
        if best is None or _is_ahead(state, trial, best):
            best = trial if score_of(state, trial) is not None else best
    return best


def _is_ahead(state: SweepState, trial: Trial, best: Trial) -> bool:
    score, best_score = score_of(state, trial), score_of(state, best)
    if score is None:
        return False
    return is_better(state, score, best_score) or (score == best_score and trial.number < best.number)


def consider_best(state: SweepState, trial: Trial) -> None:
    """Remember a trial that has ended, and did not fail, if it is the best of these."""
    if state.best_ended is None:
        state.best_ended = trial.number if score_of(state, trial) is not None else None
    elif _is_ahead(state, trial, state.trials[state.best_ended]):
        state.best_ended = trial.number


def ranked(state: SweepState) -> list[Trial]:
    """All trials that have a score and did not fail, the best first."""
    scored = [t for t in state.trials.values() if t.state != "failed" and score_of(state, t) is not None]
    sign = -1.0 if state.rules.is_max else 1.0
    return sorted(scored, key=lambda trial: (sign * (score_of(state, trial) or 0.0), trial.number))


def current_best(state: SweepState) -> Trial | None:
    """The best trial so far, running ones included; costs as much as there are trials that have not ended."""
    ended = [state.trials[state.best_ended]] if state.best_ended is not None else []
    return best_of(state, [*ended, *(state.trials[number] for number in state.active)])


def trial_time(state: SweepState, trial: Trial) -> float | None:
    """How far a trial is, in the scheduler's unit of time."""
    return as_number(trial.last.get(state.rules.time_attr))


def as_number(value: JsonValue) -> float | None:
    """A finite number as float; None for anything else (non-finite numbers travel as strings)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None
