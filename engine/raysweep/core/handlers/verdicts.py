"""Carries out the decisions of schedulers: a verdict may concern any trial, in whatever state that is.

| the trial is | stop, pause, exploit | resume |
|---|---|---|
| running | is asked to end, and remembers why | - |
| stopping | the same, if its end was not settled yet | if it was to be paused |
| queued | remembers it until it begins, or is given back | if it was to be paused |
| pending, waiting | at once | - |
| paused | at once | at once |
| final | - | - |

The verdict of a trial on its own report is taken at that report (`reports`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from raysweep.core.handlers import attempts, continuations, transitions
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Turn
from raysweep.core.vocabulary.commands import Command
from raysweep.core.vocabulary.lifecycle import FINAL, Cause
from raysweep.core.vocabulary.stop_reasons import StopReason

Out = list[Command]

# Who is stopping for one of these has no future that a scheduler could decide about.
_SETTLED: Final[frozenset[StopReason]] = frozenset({"scheduler", "limit", "non_finite", "sweep"})
# Who is stopping for one of these may still make something, which it is not to make now.
_LENIENT: Final[frozenset[StopReason]] = frozenset({"preempt", "ending"})


def settle(state: SweepState, at: float, out: Out) -> None:
    """Carry out all that was decided during this event, and what is decided upon that."""
    while state.work.undecided:
        number, verdict = state.work.undecided.popleft()
        trial = state.trials.get(number)
        if trial is None:
            transitions.note(state, f"the scheduler decides about trial {number}, which there is not")
        elif state.phase != "running" or trial.state in FINAL:
            continuations.drop(state, trial, out)
        elif verdict is not None:
            _take(state, trial, continuations.turn_of(state, trial, verdict), at, out)
        elif trial.turn is not None:
            _take(state, trial, trial.turn, at, out)


def _take(state: SweepState, trial: Trial, turn: Turn, at: float, out: Out) -> None:
    is_resume = turn.reason == "resume"
    match trial.state:
        case "queued" if not is_resume:
            continuations.give(state, trial, turn, out)
        case "queued" if trial.turn is not None and trial.turn.reason == "pause":
            continuations.drop(state, trial, out)
            if turn.config is not None:
                continuations.give(state, trial, replace(turn, reason="exploit"), out)
        case "running" if not is_resume:
            continuations.give(state, trial, turn, out)
            transitions.ask_to_end(state, trial, turn.reason, out)
        case "stopping" if not is_resume or trial.stop_reason == "pause":
            _turn_stopping(state, trial, turn, out)
        case "pending" | "waiting" if not is_resume:
            transitions.leave_line(state, trial)
            _act(state, trial, turn, at, out)
        case "paused" if turn.reason != "pause":
            _act(state, trial, turn, at, out)


def _turn_stopping(state: SweepState, trial: Trial, turn: Turn, out: Out) -> None:
    if trial.stop_reason in _SETTLED:
        return
    continuations.give(state, trial, turn, out)
    if trial.stop_reason in _LENIENT:
        transitions.ask_to_end(state, trial, turn.reason, out)
    else:
        trial.stop_reason = turn.reason  # it is on its way out anyway


def _act(state: SweepState, trial: Trial, turn: Turn, at: float, out: Out) -> None:
    """Do with a trial that no slot has what its turn says."""
    match turn.reason:
        case "scheduler":
            attempts.halt(state, trial, at, out)
        case "pause":
            transitions.move(state, trial, "paused")
        case "resume" | "exploit":
            cause: Cause = "resumed" if turn.reason == "resume" else "exploited"
            transitions.move(state, trial, cause)
            continuations.follow(state, trial, turn, out)
            transitions.enqueue(state, trial.number)
    continuations.drop(state, trial, out)


def wake(state: SweepState, at: float, out: Out) -> None:
    """Nothing else can run: ask the scheduler about the paused trials, and stop them if it resumes none."""
    paused = transitions.paused(state)
    state.work.undecided.extend(state.scheduler.idle(tuple(paused)))
    settle(state, at, out)
    trials = [state.trials[number] for number in paused]
    while state.phase == "running" and not any(trial.state == "pending" for trial in trials):
        rest = [trial for trial in trials if trial.state == "paused"]
        if not rest:
            return
        attempts.halt(state, rest[0], at, out)
        settle(state, at, out)
