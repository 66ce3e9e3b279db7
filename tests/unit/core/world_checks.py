"""What a world asserts of its state after each event, by slower means than the core has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from raysweep.core import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.views.lineage import lineage_of, up_to
from raysweep.core.views.scores import score_of
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.specs import SweepSpec


class Circles:
    """Fails on a livelock: recalls that no idle slot pays for, a timer that fires for nothing."""

    def __init__(self) -> None:
        self.room_made = 0
        self.fired_in_a_row = 0
        self.fired_since = 0.0

    def note_room(self, event: ev.Event) -> None:
        """Count what may lead to a recall that spreads a queue: a slot falls idle."""
        if isinstance(event, ev.SlotOpened | ev.TrialReturned | ev.TrialStopped | ev.TrialFailed):
            self.room_made += 1

    def check(self, state: SweepState, event: ev.Event, carried: Sequence[cmd.Command]) -> None:
        """A livelock is a failure, not a slow test."""
        is_leaving = state.phase != "running" or state.end.is_interrupted
        for command in carried:
            if isinstance(command, cmd.RecallTrials) and not is_leaving:
                slot = state.slots.get(command.slot)
                self.room_made -= slot is not None and not slot.is_leaving
        assert self.room_made >= 0, "trials are recalled and handed out again, for no slot that fell idle"
        if not isinstance(event, ev.TimerFired):
            self.fired_in_a_row = 0
            return
        assert state.clock.timer_at is None or state.clock.timer_at > event.at, (
            "a timer is set to what has been declined"
        )
        if not self.fired_in_a_row or event.at >= self.fired_since + 1.0:
            self.fired_in_a_row, self.fired_since = 0, event.at
        self.fired_in_a_row += 1
        assert self.fired_in_a_row <= 2 + 2 * len(state.trials), "the timer fires, and nothing comes of it"


def count_charged(state: SweepState) -> int:
    """How many attempts count as ended by their worker's death.

    One that had been asked to end at a limit, without a score, is a `user_error` however it ends.
    """
    ended = [attempt.kind for trial in state.trials.values() for attempt in trial.attempts]
    return sum(kind in ("worker_died", "oom") for kind in ended)


def check_lineage(trial: Trial, made_by: Mapping[str, tuple[Any, ...]]) -> None:
    """What the trial is said to have been made by is what made its checkpoints, report by report."""
    own = [trial.ancestry.origin, *trial.checkpoints]
    known = [(each, lineage_of(trial)) for each in own if each is not None]
    if trial.turn is not None and trial.turn.checkpoint is not None:
        known.append((trial.turn.checkpoint, trial.turn.lineage))
    for checkpoint, lineage in known:
        starts = [*(start for start, _ in up_to(lineage, checkpoint.iteration)), checkpoint.iteration]
        spans = zip(lineage, pairwise(starts), strict=False)
        said = [config for (_, config), (start, end) in spans for _ in range(end - start)]
        made = list(made_by[checkpoint.uri])
        assert said == made, f"trial {trial.number}: {checkpoint.uri} was made by {made}, not {said}"


def check_top(state: SweepState, spec: SweepSpec, *, has_released: bool) -> None:
    """By a sort of all trials, which the core does without. Who was extended is ranked anew."""
    limit = spec.checkpoint.keep_top_k
    done = [each for each in state.trials.values() if each.state in ("completed", "stopped")]
    if limit is None:
        return
    assert sum(each.checkpoint is not None for each in done) <= limit, "too many keep checkpoints"
    if has_released or any(each.continued.max_t is not None for each in state.trials.values()):
        return
    scored = [(score, each) for each in done if (score := score_of(state, each)) is not None]
    sign = -1.0 if spec.mode == "max" else 1.0
    scored.sort(key=lambda pair: (sign * pair[0], pair[1].number))
    lost = {each.number for _, each in scored[:limit] if each.results.saved and each.checkpoint is None}
    assert not lost, f"of the {limit} best, {lost} have lost their checkpoints"
