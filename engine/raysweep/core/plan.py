"""What follows from the state: hand trials out, ask for more, open and close slots, keep time, end."""

from __future__ import annotations

from typing import Final

from raysweep.core import ends, moves, stopping
from raysweep.core.commands import (
    Command,
    EndSweep,
    LeaveSweep,
    OpenSlot,
    SetTimer,
    StartTrial,
    SuggestConfigs,
)
from raysweep.core.seeds import derive_seed
from raysweep.core.state import SweepState
from raysweep.core.trial import Slot, Trial

Out = list[Command]

MAX_SLOT_FAILURES: Final = 3
MIN_ASK: Final = 16
MAX_ASK: Final = 256
MAX_AHEAD: Final = 2048
# Each attempt numbers its checkpoints from a number of its own: what an earlier one stored unseen, while it
# or its controller was being lost, is never in the way.
CHECKPOINTS_AN_ATTEMPT: Final = 1_000
ATTEMPTS_A_GENERATION: Final = 1_000


def advance(state: SweepState, at: float, out: Out) -> None:
    """Emit whatever follows from the state as it is now."""
    if state.target_trial is not None and state.phase == "running":
        stopping.note_target(state)
        why = f"trial {state.target_trial} reached the target {state.rules.target:g}"
        moves.stop_sweep(state, "target", why, at, out)
    if state.phase == "running" and not state.is_interrupted:
        if state.draining or state.excluded:
            _close_leaving(state, out)
        if state.hungry_for_memory or state.largest_slot_bytes:
            _place_large(state, out)
        may_begin = not state.rules.has_end or stopping.admits(state, at)
        if state.hungry_for_memory and state.largest_slot_bytes and may_begin:
            _assign_large(state, out)
        if state.pending and state.hungry and may_begin:
            _assign(state, out)
        if not state.is_exhausted:
            if may_begin:
                _suggest(state, out)
        elif not state.active and not state.has_cut:
            _complete(state)
        elif state.hungry:
            _settle(state, out)
        if not may_begin or (state.has_cut and not state.active):
            stopping.end_if_idle(state, at, out)
        elif len(state.slots) < state.capacity and state.phase == "running":
            _open_slots(state, out)
    if state.phase == "stopping" or state.is_interrupted:
        _leave_when_quiet(state, at, out)
    is_timed = (
        state.rules.is_timed or state.waiting or state.timer_at is not None or state.no_room_since is not None
    )
    if is_timed and state.phase in ("running", "stopping"):
        keep_time(state, out)


def _assign(state: SweepState, out: Out) -> None:
    depth = moves.depth(state)
    pending, hungry, trials = state.pending, state.hungry, state.trials
    too_large: list[int] = []
    while pending and hungry:
        slot = state.slots[hungry.popleft()]
        if len(slot.queue) >= depth:
            slot.is_hungry = False
            continue
        trial = trials[pending.popleft()]
        if trial.memory_bytes is not None and (slot.memory_bytes or 0) < trial.memory_bytes:
            too_large.append(trial.number)
            hungry.appendleft(slot.number)
            continue
        if trial.attempts and hungry:
            slot = _prefer_other_node(state, trial, slot, depth)
        _start(state, trial, slot, out)
        if len(slot.queue) < depth:
            hungry.append(slot.number)
        else:
            slot.is_hungry = False
    pending.extendleft(reversed(too_large))


def _prefer_other_node(state: SweepState, trial: Trial, slot: Slot, depth: int) -> Slot:
    """A trial that failed on one node does better to try another, where one is free."""
    if trial.attempts[-1].kind is None or trial.attempts[-1].node != slot.node:
        return slot
    for number in state.hungry:
        other = state.slots[number]
        is_fit = trial.memory_bytes is None or (other.memory_bytes or 0) >= trial.memory_bytes
        if other.node != slot.node and len(other.queue) < depth and is_fit:
            state.hungry.remove(number)
            state.hungry.appendleft(slot.number)
            return other
    return slot


def _close_leaving(state: SweepState, out: Out) -> None:
    for slot in [slot for slot in state.slots.values() if slot.is_leaving and not slot.queue]:
        moves.close(state, slot, out)


def _place_large(state: SweepState, out: Out) -> None:
    """Make room for trials that ran out of memory: they need slots of another shape.

    One is opened at a time; until it has its place, slots that fall idle are closed to make room for it.
    """
    slots = state.slots
    wanted = [number for number in state.pending if state.trials[number].memory_bytes is not None]
    idle = [slots[number] for number in state.hungry if not slots[number].queue]
    if not state.hungry_for_memory:
        for slot in idle:
            if slot.memory_bytes is not None:
                moves.close(state, slot, out)
    elif any(slot.memory_bytes is not None and not slot.is_open for slot in slots.values()):
        for slot in idle:
            moves.close(state, slot, out)
    elif wanted:
        need = max(state.trials[number].memory_bytes or 0 for number in wanted)
        if any((slot.memory_bytes or 0) >= need for slot in slots.values()):
            return
        if len(slots) >= _slot_limit(state):
            if not idle:
                return
            moves.close(state, idle[0], out)
        _open(state, out, need)
    state.largest_slot_bytes = max((slot.memory_bytes or 0 for slot in slots.values()), default=0)


def _assign_large(state: SweepState, out: Out) -> None:
    """Hand large trials to the large slots that are idle, before the others' line comes to them."""
    for number in [number for number in state.pending if state.trials[number].memory_bytes is not None]:
        trial, slots = state.trials[number], (state.slots[number] for number in state.hungry)
        need = trial.memory_bytes or 0
        slot = next((slot for slot in slots if not slot.queue and (slot.memory_bytes or 0) >= need), None)
        if slot is not None:
            state.pending.remove(number)
            state.hungry.remove(slot.number)
            slot.is_hungry = False
            _start(state, trial, slot, out)


def _start(state: SweepState, trial: Trial, slot: Slot, out: Out) -> None:
    checkpoint = trial.checkpoint
    moves.count(state, "pending", "queued")
    trial.state, trial.slot, trial.node = "queued", slot.number, slot.node
    trial.attempt += 1
    trial.attempt_reports = 0
    attempts = (state.generation - 1) * ATTEMPTS_A_GENERATION + trial.attempt - 1
    trial.next_checkpoint = max(trial.next_checkpoint, attempts * CHECKPOINTS_AN_ATTEMPT)
    trial.attempt_iteration = trial.iteration = checkpoint.iteration if checkpoint else 0
    slot.queue.append(trial.number)
    out.append(
        StartTrial(
            slot=slot.number,
            trial=trial.number,
            attempt=trial.attempt,
            config=trial.config,
            seed=derive_seed(state.seed, trial.number // state.rules.configs_a_seed),
            checkpoint=checkpoint.uri if checkpoint else None,
            iteration=trial.iteration,
            next_checkpoint=trial.next_checkpoint,
        )
    )


def _suggest(state: SweepState, out: Out) -> None:
    if state.asked > state.suggested:
        return
    if state.rules.is_blind:
        slots = max(len(state.slots), _slot_limit(state))
        wanted = min(MAX_AHEAD, max(MIN_ASK, 2 * moves.depth(state) * slots))
        if len(state.pending) * 2 > wanted:
            return
        count = min(MAX_ASK, wanted)
    else:
        # A config is only as good as what its searcher knows: ask when a slot is free, not before; or when
        # nothing is under way, as then it will never know more.
        idle = len(state.hungry) if not state.pending else 0
        count = idle if state.active else max(1, idle)
    if count:
        state.asked = state.suggested + count
        out.append(SuggestConfigs(first=state.suggested, count=count))


def _settle(state: SweepState, out: Out) -> None:
    """Towards the end: spread what is queued over idle slots, and give back slots that nothing will need."""
    if state.pending:
        return
    idle = [slot for slot in (state.slots[number] for number in state.hungry) if not slot.queue]
    if not idle:
        return
    loaded = max(state.slots.values(), key=lambda slot: len(slot.queue))
    if len(loaded.queue) > 1:
        if not moves.recalling(state, loaded):
            queue = list(loaded.queue)
            moves.recall(state, loaded, queue[1 + (len(queue) - 1) // 2 :], out)
        return
    for slot in idle[len(state.waiting) :]:
        moves.close(state, slot, out)


def _slot_limit(state: SweepState) -> int:
    limit = state.rules.max_concurrent
    return state.capacity if limit is None else min(limit, state.capacity)


def _needed_slots(state: SweepState) -> int:
    """How many slots there is work for: none is opened that would only be closed again."""
    if state.is_exhausted:
        busy = sum(1 for slot in state.slots.values() if slot.queue)
        return busy + len(state.pending) + len(state.waiting)
    if state.rules.max_trials is not None:
        return state.rules.max_trials - (state.suggested - len(state.active))
    return len(state.active)


def _open_slots(state: SweepState, out: Out) -> None:
    if state.slot_failures >= MAX_SLOT_FAILURES:
        return
    if state.largest_slot_bytes and any(
        slot.memory_bytes is not None and not slot.is_open for slot in state.slots.values()
    ):
        return
    limit = min(_slot_limit(state), _needed_slots(state))
    while len(state.slots) < limit:
        _open(state, out)


def _open(state: SweepState, out: Out, memory_bytes: int | None = None) -> None:
    slot = Slot(number=state.next_slot, memory_bytes=memory_bytes)
    state.next_slot += 1
    state.slots[slot.number] = slot
    out.append(OpenSlot(slot=slot.number, memory_bytes=memory_bytes))


def _complete(state: SweepState) -> None:
    done = state.counts.get("completed", 0) + state.counts.get("stopped", 0)
    if done or not state.trials:
        state.phase, state.status, state.why = "stopping", "completed", "every trial has ended"
    else:
        state.phase, state.status, state.why = "stopping", "failed", "every trial failed"
        state.fault = ends.fault_of(state)


def _leave_when_quiet(state: SweepState, at: float, out: Out) -> None:
    if state.phase == "stopping":
        # What slots give back, or searchers suggest, after the end has begun.
        moves.cut_unbegun(state, at)
    if any(slot.queue for slot in state.slots.values()):
        return
    if state.phase == "stopping" and state.status is not None:
        state.phase = "ending"
        out.append(EndSweep(status=state.status, why=state.why))
    elif state.is_interrupted and not state.has_left:
        state.has_left = True
        out.append(LeaveSweep(why=state.why))


def take_due(state: SweepState, at: float, out: Out) -> None:
    """Do what the time has come for."""
    rules = state.rules
    if stopping.plans(state):
        stopping.take_end(state, at, out)
    elif state.deadline_at is not None and at >= state.deadline_at:
        moves.stop_sweep(state, "deadline", "the deadline has come", at, out)
    elif rules.time_budget_s is not None and state.active_s(at) >= rules.time_budget_s:
        moves.stop_sweep(state, "budget", f"the time budget of {rules.time_budget_s:g} s is spent", at, out)
    for number in [number for number, due in state.waiting.items() if due <= at]:
        del state.waiting[number]
        state.trials[number].due_at = None
        moves.requeue(state, state.trials[number], "due")
    if rules.trial_time_s is not None or rules.report_timeout_s is not None:
        for slot in state.slots.values():
            if slot.queue and state.trials[slot.queue[0]].state == "running":
                _take_due_trial(state, slot, state.trials[slot.queue[0]], at, out)
    no_room = state.no_room_since
    if no_room is not None and at - no_room >= rules.placement_timeout_s and not _is_busy(state):
        why = f"for {rules.placement_timeout_s:g} s no node could hold a trial: {state.no_room_problem}"
        moves.interrupt(state, why, out, fault="infrastructure")


def _take_due_trial(state: SweepState, slot: Slot, trial: Trial, at: float, out: Out) -> None:
    limit, started_at = state.rules.trial_time_s, trial.attempt_started_at
    timeout = state.rules.report_timeout_s
    if limit is not None and started_at is not None and at - started_at >= limit:
        moves.ask_to_end(state, trial, "limit", out)
    elif timeout is not None and at - slot.heard_at >= timeout and not moves.may_be_silent(state, slot):
        moves.ask_to_end(state, trial, "hung", out, grace_s=0.0)


def _is_busy(state: SweepState) -> bool:
    return any(slot.queue for slot in state.slots.values())


def keep_time(state: SweepState, out: Out) -> None:
    """Have the timer set to the next moment at which something is due."""
    rules = state.rules
    times = list(state.waiting.values())
    end = stopping.end_in_sight(state) if state.phase == "running" and rules.has_end else None
    if end is not None:
        times.append(end.at)
    if rules.trial_time_s is not None:
        times += _trial_limits(state, rules.trial_time_s)
    if state.phase == "running" and state.no_room_since is not None and not state.is_interrupted:
        times.append(state.no_room_since + rules.placement_timeout_s)
    if rules.report_timeout_s is not None:
        due, early = _next_silence(state, rules.report_timeout_s), state.timer_at
        # A timer that is early costs less than one that is set anew with each report.
        if early is not None and (due is None or early <= due):
            due = early
        if due is not None:
            times.append(due)
    at = min(times, default=None)
    if at != state.timer_at:
        state.timer_at = at
        out.append(SetTimer(at=at))


def _next_silence(state: SweepState, timeout_s: float) -> float | None:
    """When the running trial that has been silent for longest will have been so for too long."""
    heard = [
        slot.heard_at
        for slot in state.slots.values()
        if slot.queue
        and state.trials[slot.queue[0]].state == "running"
        and not moves.may_be_silent(state, slot)
    ]
    return min(heard) + timeout_s if heard else None


def _trial_limits(state: SweepState, trial_time_s: float) -> list[float]:
    heads = [state.trials[slot.queue[0]] for slot in state.slots.values() if slot.queue]
    return [
        trial.attempt_started_at + trial_time_s
        for trial in heads
        if trial.state == "running" and trial.attempt_started_at is not None
    ]
