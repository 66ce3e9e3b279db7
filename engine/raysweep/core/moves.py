"""The small steps that the core is made of: one trial moved, one slot marked, one stop asked for."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil
from typing import Final

from raysweep.core.commands import CloseSlot, Command, RecallTrials, StopTrial, SweepStatus
from raysweep.core.lifecycle import Cause, TrialState, advance
from raysweep.core.scores import consider_best
from raysweep.core.state import Fault, SweepState
from raysweep.core.trial import Slot, StopReason, Trial

Out = list[Command]

# Trials shorter than this are queued ahead at their worker, as many as fill AHEAD_S; others gain nothing.
SHORT_TRIAL_S: Final = 1.0
AHEAD_S: Final = 0.05
MAX_DEPTH: Final = 64
MAX_NOTES: Final = 100


def count(state: SweepState, before: TrialState, after: TrialState) -> None:
    """Keep the number of trials in each state."""
    counts = state.counts
    counts[before] -= 1
    counts[after] = counts.get(after, 0) + 1


def move(state: SweepState, trial: Trial, cause: Cause) -> None:
    """Move a trial along a row of the lifecycle table."""
    before = trial.state
    trial.state = advance(before, cause)
    count(state, before, trial.state)


def begin(state: SweepState, trial: Trial, at: float) -> None:
    """User code of the present attempt runs."""
    move(state, trial, "began")
    trial.attempt_started_at = at
    slot = state.slots.get(trial.slot) if trial.slot is not None else None
    if slot is not None:
        hear(slot, at)
    trial.reported_at = trial.step_s = trial.saved_at = trial.save_s = None
    if trial.started_at is None:
        trial.started_at = at


def hear(slot: Slot, at: float) -> None:
    """The slot's running trial is at work, and can report."""
    slot.heard_at, slot.is_busy = at, False


def may_be_silent(state: SweepState, slot: Slot) -> bool:
    """Whether nothing is to be heard of the slot's trial at present, however well it is."""
    return state.is_stalled or slot.is_busy


def enqueue(state: SweepState, number: int) -> None:
    """Put a trial into the line, which is kept in the order of the numbers.

    So the order in which trials are handed out does not depend on the order in which slots gave them back.
    """
    pending = state.pending
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


def cut(state: SweepState, trial: Trial, at: float) -> None:
    """A trial that no slot has ends with the sweep."""
    move(state, trial, "cut")
    trial.ended_at, trial.due_at = at, None
    forget_active(state, trial)
    state.scheduler.remove(trial.number)
    consider_best(state, trial)


def forget_active(state: SweepState, trial: Trial) -> None:
    """The trial has ended for good."""
    if state.active.pop(trial.number, 0) is None and trial.memory_bytes is not None:
        state.hungry_for_memory -= 1


def cut_unbegun(state: SweepState, at: float) -> None:
    """Cancel what no slot has."""
    for number in [*state.pending, *state.waiting]:
        cut(state, state.trials[number], at)
    state.pending.clear()
    state.waiting.clear()


def depth(state: SweepState) -> int:
    """How many trials a slot may hold, the running one included."""
    mean = state.mean_duration_s
    if mean is None or mean >= SHORT_TRIAL_S or not state.rules.is_blind:
        return 1
    return MAX_DEPTH if mean <= 0.0 else min(MAX_DEPTH, 1 + ceil(AHEAD_S / mean))


def mark_hungry(state: SweepState, slot: Slot) -> None:
    """Note that a slot can take another trial; an idle one goes to the front."""
    if slot.is_open and not slot.is_hungry and not slot.is_leaving and len(slot.queue) < depth(state):
        slot.is_hungry = True
        if slot.queue:
            state.hungry.append(slot.number)
        else:
            state.hungry.appendleft(slot.number)


def close(state: SweepState, slot: Slot, out: Out) -> None:
    """Close a slot that has no trial."""
    if slot.is_hungry:
        state.hungry.remove(slot.number)
    del state.slots[slot.number]
    out.append(CloseSlot(slot=slot.number))


def leave(state: SweepState, slot: Slot, out: Out) -> None:
    """Hand nothing more to a slot; it is closed when its trial has ended."""
    if slot.is_leaving:
        return
    slot.is_leaving = True
    if slot.is_hungry:
        slot.is_hungry = False
        state.hungry.remove(slot.number)
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


def note(state: SweepState, text: str) -> None:
    """Keep a line for the user, once; a storage that is down all night must not fill the state."""
    if text not in state.notes and len(state.notes) < MAX_NOTES:
        state.notes += (text,)


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
    if trial.state == "running":
        count(state, "running", "stopping")
    trial.state, trial.stop_reason = "stopping", reason
    out.append(
        StopTrial(
            slot=trial.slot,
            trial=trial.number,
            attempt=trial.attempt,
            reason=reason,
            grace_s=state.rules.grace_s if grace_s is None else grace_s,
            wants_checkpoint=wants_checkpoint,
        )
    )


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
            elif reason == "sweep" and trial.stop_reason == "interrupt":
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
    if state.phase != "running":
        return
    state.phase, state.status, state.why = "stopping", status, why
    state.fault, state.fault_field = fault, fault_field
    state.is_interrupted = False
    cut_unbegun(state, at)
    ask_all_to_end(state, "sweep", out)


def interrupt(
    state: SweepState, why: str, out: Out, *, fault: Fault | None = None, fault_field: str = ""
) -> None:
    """Begin to leave: nothing new starts, what runs is asked to end, and all of it runs again on a resume."""
    if state.phase != "running" or state.is_interrupted:
        return
    state.is_interrupted, state.why = True, why
    state.fault, state.fault_field = fault, fault_field
    ask_all_to_end(state, "interrupt", out)
