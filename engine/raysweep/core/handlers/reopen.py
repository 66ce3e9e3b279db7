"""A person wants more of a sweep: failed trials run again, the best go further than their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from raysweep.core.handlers import sweep_end, transitions
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.views.scores import ranked, told, trial_time


def find_failed(state: SweepState) -> tuple[int, ...]:
    """The trials that failed and can run again: not those whose config could not be made."""
    return tuple(n for n, trial in state.trials.items() if trial.state == "failed" and not trial.is_unmade)


def retry(state: SweepState, numbers: Sequence[int]) -> None:
    """Run failed trials again, from their checkpoints; how they failed does not count any more.

    What is no failed trial (any more) is passed over: the same may be asked for twice.
    """
    room = state.room
    for number in sorted({*numbers} & {*find_failed(state)}):
        known = told(state, state.trials[number])
        trial = sweep_end.take_back(state, state.trials[number], "again")
        if state.rules.search.is_logged:
            # What it suggested since then followed from the failure, too: it cannot be told otherwise now.
            trial.continued = replace(trial.continued, told=known)
        kind = trial.attempts[-1].kind
        if kind is not None:
            state.line.failed_kinds[kind] -= 1
        trial.continued = replace(trial.continued, pardoned=len(trial.attempts))
        state.scheduler.add(number, trial.config)
        for node in [node for node, failed in room.node_failures.items() if number in failed]:
            room.node_failures[node].remove(number)
            if not room.node_failures[node]:
                del room.node_failures[node]


def extend(state: SweepState) -> bool:
    """The sweep is complete: let go further what is to; False where there is nothing of that."""
    max_t, state.end.extend_to = state.end.extend_to, None
    if max_t is None:
        return False
    has_moved, chosen = False, _chosen(state, max_t)
    if not chosen and not any(_goes_to(trial, max_t) for trial in state.trials.values()):
        transitions.note(state, "no trial has a checkpoint from which it could go further")
    for trial in chosen:
        time = trial_time(state, trial)
        if trial.checkpoint is None:
            transitions.note(state, f"trial {trial.number} has no checkpoint from which it could go further")
        elif time is not None and time >= max_t:
            trial = transitions.thaw(state, trial)
            trial.continued = replace(trial.continued, max_t=max_t)
        else:
            known = told(state, trial)
            further = sweep_end.take_back(state, trial, "extended")
            further.continued = replace(further.continued, max_t=max_t, told=known)
            has_moved = True
    sweep_end.find_best(state)
    return has_moved


def _chosen(state: SweepState, max_t: float) -> list[Trial]:
    end = state.end
    done = [trial for trial in ranked(state) if trial.state in ("completed", "stopped")]
    if end.extend_trials:
        wanted = set(end.extend_trials)
        return [trial for trial in done if trial.number in wanted and not _goes_to(trial, max_t)]
    there = sum(_goes_to(trial, max_t) for trial in done)
    rest: Iterator[Trial] = (t for t in done if t.checkpoint is not None and not _goes_to(t, max_t))
    return [trial for trial, _ in zip(rest, range(end.extend_top - there), strict=False)]


def _goes_to(trial: Trial, max_t: float) -> bool:
    return trial.continued.max_t is not None and trial.continued.max_t >= max_t
