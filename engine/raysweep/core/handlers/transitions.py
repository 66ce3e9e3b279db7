"""The small steps that the core is made of: one trial moved, one slot marked, one stop asked for."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil
from typing import Final

from raysweep.core.handlers import sequential
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.sweep_parts import Fault, Note
from raysweep.core.state.trial import Slot, Trial
from raysweep.core.views import lineage
from raysweep.core.views.scores import consider_best
from raysweep.core.vocabulary.commands import (
    CloseSlot,
    Command,
    OpenSlot,
    RecallTrials,
    StopTrial,
    SweepStatus,
)
from raysweep.core.vocabulary.lifecycle import FINAL, Cause, advance
from raysweep.core.vocabulary.stop_reasons import StopReason
from raysweep.space.amounts import USUAL, Needs

Out = list[Command]

# Trials shorter than this are queued ahead at their worker, as many as fill AHEAD_S; others gain nothing.
SHORT_TRIAL_S: Final = 1.0
AHEAD_S: Final = 0.05
MAX_DEPTH: Final = 64
MAX_NOTES: Final = 100
# How long a trial on a node that is about to go may take to its next checkpoint: GRACE where it is unknown
# when the node goes, else until MARGIN before.
PREEMPT_GRACE_S: Final = 30.0
PREEMPT_MARGIN_S: Final = 10.0
# Workers that failed to start, one after the other: then no more are started until something changes.
MAX_SLOT_FAILURES: Final = 3
# Who stops for one of these was to continue, which the end of the sweep forbids.
_OVERRULED: Final[frozenset[StopReason]] = frozenset({"interrupt", "pause", "resume", "exploit", "damage"})


def thaw(state: SweepState, trial: Trial) -> Trial:
    """The trial to change: a copy of one that has ended, as a snapshot may be made of that one right now."""
    if trial.state in FINAL:
        trial = state.trials[trial.number] = trial.thawed()
    return trial


def move(state: SweepState, trial: Trial, cause: Cause) -> None:
    """Move a trial along a row of the lifecycle table, and keep the number of trials in each state.

    Nothing else moves a trial.
    """
    before = trial.state
    trial.state = after = advance(before, cause)
    counts = state.line.counts
    counts[before] -= 1
    counts[after] = counts.get(after, 0) + 1


def begin(state: SweepState, trial: Trial, at: float) -> None:
    """User code of the present attempt runs."""
    move(state, trial, "began")
    if trial.ancestry.lineage:
        lineage.begin(trial)
    if trial.turn is not None:
        _take_turn(state, trial)
    trial.attempt_started_at = at
    slot = state.slots.get(trial.slot) if trial.slot is not None else None
    if slot is not None:
        if not slot.heard_at:
            # Only a worker that has begun a trial is known to work; one that worked before proves nothing.
            state.room.slot_failures = 0
        slot.heard_at, slot.is_busy = at, False
        state.tally.touch(slot.number)
    trial.pace = None
    if trial.started_at is None:
        trial.started_at = at


def hear(state: SweepState, trial: Trial, at: float) -> None:
    """The trial is at work in its slot, and can report."""
    slot = state.slots.get(trial.slot) if trial.slot is not None else None
    if slot is not None:
        if slot.is_busy or at < slot.heard_at:
            state.tally.touch(slot.number)
        slot.heard_at, slot.is_busy = at, False


def may_be_silent(state: SweepState, slot: Slot) -> bool:
    """True if nothing is to be heard of the slot's trial at present, however well it is."""
    return state.controller.is_stalled or slot.is_busy


def enqueue(state: SweepState, number: int) -> None:
    """Put a trial into the line, which is kept in the order of the numbers.

    So the order in which trials are handed out does not depend on the order in which slots gave them back.
    """
    pending = state.line.pending
    if not pending or number > pending[-1]:
        pending.append(number)
    elif number < pending[0]:
        pending.appendleft(number)
    else:
        pending.insert(bisect_left(pending, number), number)


def requeue(state: SweepState, trial: Trial, cause: Cause) -> None:
    """A trial that does not run goes back into the line; its attempt number is not used again."""
    move(state, trial, cause)
    trial.slot = None
    enqueue(state, trial.number)
    _take_turn(state, trial)


def _take_turn(state: SweepState, trial: Trial) -> None:
    """A trial that was queued is not so any more: what was decided about it meanwhile is carried out."""
    if trial.turn is not None:
        state.work.undecided.append((trial.number, None))


def leave_line(state: SweepState, trial: Trial) -> None:
    """Take a pending or waiting trial out of the line; the caller moves it."""
    if trial.state == "pending":
        state.line.pending.remove(trial.number)
    else:
        del state.line.waiting[trial.number]
        trial.due_at = None


def paused(state: SweepState) -> list[int]:
    """The paused trials, in the order of their numbers."""
    if not state.line.counts.get("paused"):
        return []
    return sorted(number for number in state.line.active if state.trials[number].state == "paused")


def cut(state: SweepState, trial: Trial, at: float) -> None:
    """A trial that no slot has ends with the sweep."""
    move(state, trial, "cut")
    trial.ended_at, trial.due_at = at, None
    forget_active(state, trial)
    if trial.continued.max_t is None:
        state.scheduler.remove(trial.number)
    consider_best(state, trial)


def forget_active(state: SweepState, trial: Trial) -> None:
    """The trial has ended for good."""
    if state.line.active.pop(trial.number, 0) is None and trial.is_large:
        state.line.hungry_for_memory -= 1


def cut_unbegun(state: SweepState, at: float) -> None:
    """Cancel what no slot has."""
    line = state.line
    for number in [*line.pending, *line.waiting, *paused(state)]:
        cut(state, state.trials[number], at)
    line.pending.clear()
    line.waiting.clear()


def excess(state: SweepState) -> int:
    """The number of slots that the sweep has beyond its share of the cluster."""
    share = state.room.share
    return 0 if share is None else max(0, len(state.slots) - share)


def depth(state: SweepState) -> int:
    """The number of trials that a slot may hold, the running one included."""
    if state.room.kept or (state.room.share is not None and excess(state)):
        return 1  # the first that is done gives its slot back
    mean = state.meter.mean_duration_s
    if mean is None or mean >= SHORT_TRIAL_S or not state.rules.search.is_blind or sequential.is_kept(state):
        return 1
    # A mean that has sunk to next to nothing divides into infinity, which has no ceiling.
    return MAX_DEPTH if mean * MAX_DEPTH <= AHEAD_S else min(MAX_DEPTH, 1 + ceil(AHEAD_S / mean))


def mark_hungry(state: SweepState, slot: Slot) -> None:
    """Note that a slot can take another trial; an idle one goes to the front."""
    line = state.line
    state.tally.touch(slot.number)
    if slot.is_hungry:
        if not slot.queue and line.hungry[0] != slot.number:
            line.hungry.remove(slot.number)
            line.hungry.appendleft(slot.number)
    elif slot.is_open and not slot.is_leaving and len(slot.queue) < depth(state):
        slot.is_hungry = True
        if slot.queue:
            line.hungry.append(slot.number)
        else:
            line.hungry.appendleft(slot.number)


def slot_limit(state: SweepState) -> int:
    """The number of slots that there may be now."""
    room, most = state.room, state.rules.slots.max_concurrent
    limit = room.capacity if most is None else min(most, room.capacity)
    if room.kept:
        limit = min(limit, len(state.slots))  # a new one could come to lie on a node that is cleared
    return limit if room.share is None else min(limit, room.share)


def open_slot(state: SweepState, out: Out, needs: Needs = USUAL) -> None:
    """Open another slot, for trials with these needs."""
    slot = Slot(number=state.room.next_slot, needs=needs)
    state.room.next_slot += 1
    state.slots[slot.number] = slot
    state.tally.touch(slot.number)
    if slot.is_large:
        state.tally.open_large()
    out.append(OpenSlot(slot=slot.number, needs=needs))


def idle(state: SweepState) -> list[Slot]:
    """The slots in the line that have no trial, in its order."""
    return [state.slots[number] for number in state.line.hungry.sorted(state.tally.idle)]


def close(state: SweepState, slot: Slot, out: Out) -> None:
    """Close a slot that has no trial."""
    state.tally.touch(slot.number)
    if slot.is_hungry:
        state.line.hungry.remove(slot.number)
    del state.slots[slot.number]
    out.append(CloseSlot(slot=slot.number))


def leave(state: SweepState, slot: Slot, out: Out) -> None:
    """Hand nothing more to a slot; it is closed when its trial has ended."""
    if slot.is_leaving:
        return
    slot.is_leaving = True
    state.tally.touch(slot.number)
    if slot.is_hungry:
        slot.is_hungry = False
        state.line.hungry.remove(slot.number)
    queued = [number for number in slot.queue if state.trials[number].state == "queued"]
    if queued:
        recall(state, slot, queued, out)


def recall(state: SweepState, slot: Slot, trials: list[int], out: Out) -> None:
    """Take queued trials back from a slot; those that it was asked for already are not named again."""
    asked = recalling(state, slot)
    trials = [number for number in trials if number not in asked]
    if trials:
        pairs = [(number, state.trials[number].attempt) for number in [*asked, *trials]]
        slot.recalling = tuple(pairs)
        out.append(RecallTrials(slot=slot.number, trials=tuple(trials)))


def recalling(state: SweepState, slot: Slot) -> list[int]:
    """The trials that a slot was asked to give back and may still give back: they have not begun since."""
    trials = state.trials
    return [
        number
        for number, attempt in slot.recalling
        if trials[number].state == "queued" and trials[number].attempt == attempt
    ]


def note(state: SweepState, text: str, *, trial: int | None = None, count: int = 0) -> None:
    """Keep a line for the user, once; a storage that is down all night must not fill the state.

    `count`: with how often that was so, in the place of a lower number.
    """
    noted = Note(text=text, trial=trial, count=count)
    if count:
        known = [each for each in state.noted if each.count and (each.text, each.trial) == (text, trial)]
        state.noted = tuple(each for each in state.noted if each not in known)
        noted = max([noted, *known], key=lambda each: each.count)
    if noted not in state.noted and len(state.noted) < MAX_NOTES:
        state.noted += (noted,)


def ask_to_end(
    state: SweepState,
    trial: Trial,
    reason: StopReason,
    out: Out,
    *,
    grace_s: float | None = None,
    wants_checkpoint: bool = False,
) -> None:
    """Ask one running trial to end (within `grace_s`, by default the policy's), or for another reason now."""
    if trial.slot is None:
        return
    if trial.state != "stopping":
        move(state, trial, "asked")
    trial.stop_reason = reason
    out.append(
        StopTrial(
            slot=trial.slot,
            trial=trial.number,
            attempt=trial.attempt,
            reason=reason,
            grace_s=state.rules.limits.grace_s if grace_s is None else grace_s,
            wants_checkpoint=wants_checkpoint,
        )
    )


def preempt(state: SweepState, trial: Trial, at: float, deadline: float | None, out: Out) -> None:
    """Ask a trial for a checkpoint, so that it can continue elsewhere, as long before the end as is wise."""
    grace_s = PREEMPT_GRACE_S
    if deadline is not None:
        left = max(0.0, deadline - at)
        grace_s = left - min(PREEMPT_MARGIN_S, left / 4)
    ask_to_end(state, trial, "preempt", out, grace_s=grace_s, wants_checkpoint=True)


def ask_all_to_end(state: SweepState, reason: StopReason, out: Out) -> None:
    """Stop every running trial, and take back every queued one."""
    for slot in state.slots.values():
        queued = []
        for number in slot.queue:
            trial = state.trials[number]
            if trial.state == "running":
                ask_to_end(state, trial, reason, out)
            elif trial.state == "queued":
                queued.append(number)
            elif reason == "sweep" and trial.stop_reason in _OVERRULED:
                trial.stop_reason = "sweep"
            elif trial.stop_reason == "preempt":
                ask_to_end(state, trial, reason, out)
        if queued:
            recall(state, slot, queued, out)


def stop_sweep(
    state: SweepState,
    status: SweepStatus,
    why: str,
    at: float,
    out: Out,
    *,
    fault: Fault | None = None,
    fault_field: str = "",
) -> None:
    """Begin to end the sweep: nothing new starts, what runs is asked to end. The first reason stands."""
    end = state.end
    if state.phase != "running":
        return
    state.phase, end.status, end.why = "stopping", status, why
    end.fault, end.fault_field = fault, fault_field
    end.is_interrupted = False
    cut_unbegun(state, at)
    ask_all_to_end(state, "sweep", out)


def interrupt(
    state: SweepState, why: str, out: Out, *, fault: Fault | None = None, fault_field: str = ""
) -> None:
    """Begin to leave: nothing new starts, what runs is asked to end, and all of it runs again on a resume."""
    end = state.end
    if state.phase != "running" or end.is_interrupted:
        return
    end.is_interrupted, end.why = True, why
    end.fault, end.fault_field = fault, fault_field
    ask_all_to_end(state, "interrupt", out)
