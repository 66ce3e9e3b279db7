"""`step(state, event) -> commands`: the whole of a sweep's behaviour, as a pure function of its events.

Rules:

1. A handler changes the state as far as the event itself goes. `follow_up.advance` then acts on the new
   state: it hands trials out, asks for configs, opens and closes slots, ends the sweep. Nothing else starts
   anything.
2. An event that does not fit (a trial that has ended, an attempt that is over, a slot that is gone) changes
   nothing: it crossed a decision on the wire, or was delivered twice.
3. The same events in the same order give the same state and the same commands, at any time, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Never

from raysweep.core.handlers import (
    attempts,
    follow_up,
    reopen,
    repeats,
    reports,
    retention,
    sharing,
    sizes,
    sweep_end,
    transitions,
)
from raysweep.core.state.compiled_spec import Rules
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Slot, Trial
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.commands import Command, ExcludeNode
from raysweep.core.vocabulary.failures import classify
from raysweep.core.vocabulary.lifecycle import ON_SLOT
from raysweep.errors import TrainableImportError
from raysweep.space.other_tools import space_notes
from raysweep.specs import SweepSpec
from raysweep.specs.code_digest import is_other_code

Out = list[Command]
# A clock that runs a little fast or slow is corrected all the time.
NOTED_MOVE_S: Final = 60.0


def step(state: SweepState, event: ev.Event) -> list[Command]:
    """Apply one event to the state (in place) and return what is to be done now, in order."""
    out: Out = []
    if state.phase == "ended" and not (isinstance(event, ev.ControllerStarted) and event.is_reopening):
        if isinstance(event, ev.ControllerStarted):
            retention.release(state, event.released, out)
        return out
    at, room = event.at, state.room
    slots, next_slot = len(state.slots), room.next_slot
    _HANDLERS[type(event)](state, event, out)  # type: ignore[arg-type]
    state.clock.last_at = at
    follow_up.advance(state, at, out)
    if state.work.unranked:
        retention.rank(state, out)
    if len(state.slots) != slots or room.next_slot != next_slot or type(event) is ev.SlotOpened:
        sweep_end.meter(state, at)
        if state.rules.ends.budgets:
            follow_up.keep_time(state, out)
    return out


def _on_controller_started(state: SweepState, event: ev.ControllerStarted, out: Out) -> None:
    controller, clock, end, room = state.controller, state.clock, state.end, state.room
    if event.generation <= controller.generation:
        return
    # The heartbeat goes by the wall clock, which may have been set since.
    seen_at = clock.last_at
    if event.seen_at is not None:
        seen_at = max(seen_at, min(event.at, event.seen_at - clock.ahead_s))
    clock.ahead_s = 0.0
    sweep_end.wait_no_longer(state, clock.last_at, event.at)
    if controller.generation:
        controller.active_before_s = controller.active_s(seen_at if state.phase != "ended" else clock.last_at)
    sweep_end.count_until(state, seen_at)
    state.meter.open_slots, state.meter.slot_s_at = 0, event.at
    if not clock.deadline_text:
        sweep_end.set_deadline(state, event.deadline)
    if state.phase == "ended":
        if event.extend_to is not None:
            sweep_end.rest(state)
        sweep_end.reopen(state)
    _note_code(state, event)
    controller.generation, controller.started_at = event.generation, event.at
    if clock.started_at is None:
        clock.started_at = event.at
        _note_space(state)
    state.tally.touch(*state.slots)
    state.slots.clear()
    state.line.hungry.clear()
    state.search.asked = state.search.suggested
    end.is_interrupted = end.has_left = controller.is_stalled = False
    if state.phase == "running":
        end.why, end.fault, end.fault_field = "", None, ""
    room.capacity, room.slot_failures, clock.timer_at = 0, 0, None
    room.no_room_since = room.no_memory_since = None
    room.draining.clear()
    sharing.forget(state)
    out.extend(ExcludeNode(node=node) for node in room.excluded)
    orphans = [state.trials[number] for number in state.line.active if state.trials[number].state in ON_SLOT]
    for trial in orphans:
        attempts.end_orphan(state, trial, clock.last_at, out)
    if state.phase == "ending":
        state.phase = "stopping"
    if event.extend_to is not None:
        end.extend_to, end.extend_top = event.extend_to, event.extend_top
        end.extend_trials = list(event.extend_trials)
    if state.phase == "running" and event.retried:
        reopen.retry(state, event.retried)


def _note_code(state: SweepState, event: ev.ControllerStarted) -> None:
    controller = state.controller
    if is_other_code(controller.code, event.code):
        text = f"the trainable's code was changed: what began before run {event.generation} of this sweep"
        transitions.note(state, f"{text} had the earlier code")
    controller.code = event.code or controller.code


def _note_space(state: SweepState) -> None:
    spec = state.spec
    is_repeated = (spec.num_samples or 2) > 1 and not (spec.points or spec.search.options.is_listed)
    for text in space_notes(spec.param_space, is_repeated=is_repeated):
        transitions.note(state, text)


def _on_spec_changed(state: SweepState, event: ev.SpecChanged, out: Out) -> None:
    state.spec = SweepSpec.model_validate(event.spec)
    state.rules = Rules.of(state.spec, state.scheduler)
    state.clock.deadline_at, state.clock.deadline_text = state.rules.ends.deadline, ""
    sweep_end.set_deadline(state, event.deadline)
    if state.end.has_cut and state.phase == "running":
        sweep_end.bring_back(state)
    state.search.is_exhausted = False
    for change in event.changes:
        transitions.note(state, f"spec changed: {change}")


def _on_capacity_changed(state: SweepState, event: ev.CapacityChanged, out: Out) -> None:
    room = state.room
    room.capacity, room.slot_failures = event.slots, 0
    room.nodes, room.largest_memory, room.beyond = (
        event.nodes,
        event.memory_bytes,
        event.beyond,
    )
    if event.note:
        transitions.note(state, event.note)
    if event.slots:
        room.no_room_since = None
    elif room.no_room_since is None:
        room.no_room_since = event.at
        transitions.note(state, f"no room at present: {event.problem}")
    room.no_room_problem = event.problem


def _on_slot_opened(state: SweepState, event: ev.SlotOpened, out: Out) -> None:
    slot = state.slots.get(event.slot)
    if slot is None or slot.is_open:
        return
    slot.is_open, slot.node, slot.others = True, event.node, event.others
    if slot.is_on(state.room.draining) or slot.is_on(state.room.excluded):
        transitions.leave(state, slot, out)
    transitions.mark_hungry(state, slot)


def _on_slot_delayed(state: SweepState, event: ev.SlotDelayed, out: Out) -> None:
    if event.slot in state.slots:
        transitions.note(state, event.problem)


def _on_slot_failed(state: SweepState, event: ev.SlotFailed, out: Out) -> None:
    slot = _take_slot_away(state, event.slot)
    if slot is None:
        return
    # The worker in whose place this one was to come has left a queue behind.
    _give_queue_back(state, slot, event.at, out)
    _count_failed_start(state, event, event.node, out)


def _take_slot_away(state: SweepState, number: int) -> Slot | None:
    state.tally.touch(number)
    slot = state.slots.pop(number, None)
    if slot is not None and slot.is_hungry:
        state.line.hungry.remove(number)
    return slot


def _give_queue_back(state: SweepState, slot: Slot, at: float, out: Out) -> None:
    """The slot is gone by no fault of its trials: they run again, and none of them is charged."""
    for number in slot.queue:
        attempts.lose_attempt(state, state.trials[number], at, out)


def _count_failed_start(state: SweepState, event: ev.SlotFailed | ev.SlotLost, node: str, out: Out) -> None:
    """A worker failed before it had a trial: after several in a row, no more are started."""
    room = state.room
    failure = event.failure
    if classify(failure) == "preempted":
        return
    room.slot_failures += 1
    # What loads on other nodes is not at fault itself.
    elsewhere = any(count for other, count in state.tally.nodes.items() if other != node)
    if node and elsewhere:
        transitions.note(state, f"a worker on node {node} could not be started: {failure}")
        attempts.blame_node(state, -event.slot - 1, node, out)
        room.slot_failures -= node in room.excluded
    # A cluster or an environment that cannot run workers says nothing about the sweep: leave it resumable.
    if failure.is_fatal and not (node and elsewhere):
        # The error that the sweep raises has this class itself.
        why = failure.message if failure.type == TrainableImportError.__name__ else str(failure)
        transitions.interrupt(state, why, out, fault="spec", fault_field="trainable")
    elif room.slot_failures >= transitions.MAX_SLOT_FAILURES:
        why = f"{room.slot_failures} workers in a row could not be started: {failure}"
        if state.slots:
            # Others work, or may yet: continue with these, and open no more until something changes.
            transitions.note(state, why)
        else:
            transitions.interrupt(state, why, out, fault="infrastructure")


def _on_slot_lost(state: SweepState, event: ev.SlotLost, out: Out) -> None:
    slot = _take_slot_away(state, event.slot)
    if slot is None:
        return
    if not event.was_handed:
        _give_queue_back(state, slot, event.at, out)
        if not slot.heard_at:
            # No trial has ever begun in it: like one that does not start, it must not be replaced for ever.
            _count_failed_start(state, event, slot.node, out)
        return
    state.room.slot_failures = 0
    for position, number in enumerate(slot.queue):
        trial = state.trials[number]
        # The first in the queue may have begun without our knowing: likely it is what killed the worker.
        if position == 0 and not (trial.state == "queued" and classify(event.failure) == "preempted"):
            if trial.state == "queued":
                transitions.begin(state, trial, event.at)
            attempts.fail_attempt(state, trial, event.failure, event.at, out)
        else:
            transitions.requeue(state, trial, "lost")


def _on_node_draining(state: SweepState, event: ev.NodeDraining, out: Out) -> None:
    if event.node in state.room.draining:
        return
    state.room.draining.append(event.node)
    transitions.note(
        state, f"node {event.node} is about to go ({event.reason or 'drained'}): its trials move"
    )
    for slot in state.slots.values():
        if slot.is_on((event.node,)):
            transitions.leave(state, slot, out)
            head = state.trials[slot.queue[0]] if slot.queue else None
            if head is not None and head.state == "running":
                transitions.preempt(state, head, event.at, event.deadline, out)


def _on_demand_stuck(state: SweepState, event: ev.DemandStuck, out: Out) -> None:
    transitions.note(state, event.problem)
    silence_s = state.rules.slots.placement_timeout_s
    heads = [slot for slot in state.slots.values() if slot.queue]
    are_silent = all(
        event.at - slot.heard_at >= silence_s and not transitions.may_be_silent(state, slot) for slot in heads
    )
    if event.can_never and heads and are_silent:
        transitions.interrupt(state, event.problem, out, fault="spec", fault_field="resources")


def _on_storage_stalled(state: SweepState, event: ev.StorageStalled, out: Out) -> None:
    state.controller.is_stalled = not event.is_over
    if event.is_over:
        # What they would have said meanwhile is on its way.
        state.tally.touch(*state.slots)
        for slot in state.slots.values():
            slot.heard_at = event.at


def _on_clock_moved(state: SweepState, event: ev.ClockMoved, out: Out) -> None:
    by_s, state.clock.ahead_s = event.ahead_s - state.clock.ahead_s, event.ahead_s
    if abs(by_s) >= NOTED_MOVE_S:
        how = f"{'forward' if by_s > 0 else 'back'} by {abs(by_s):.0f} s"
        text = f"the clock of the controller's machine moved {how} (set, or suspended): only deadlines follow"
        transitions.note(state, text)


def _on_configs_suggested(state: SweepState, event: ev.ConfigsSuggested, out: Out) -> None:
    line, search = state.line, state.search
    if event.first != search.suggested or state.phase != "running":
        return
    failed = {config.number: config.failure for config in event.failed}
    for number, config in enumerate(event.configs, start=event.first):
        trial = state.trials[number] = Trial(number=number, config=config)
        line.active[number] = None
        state.scheduler.add(number, config)
        if number not in failed and (failure := sizes.note(state, trial)) is not None:
            failed[number] = failure
        if number not in failed:
            line.pending.append(number)
    line.counts["pending"] = line.counts.get("pending", 0) + len(event.configs)
    search.suggested += len(event.configs)
    search.asked = search.suggested
    # A searcher that has nothing to suggest would be asked again and again.
    search.is_exhausted = event.is_exhausted or not event.configs
    if event.note:
        transitions.note(state, event.note)
    if state.rules.search.repeats > 1:
        repeats.note_suggested(state, event.first, len(event.configs))
    for number, failure in failed.items():
        attempts.fail_config(state, state.trials[number], failure, event.at, out)


def _on_trial_started(state: SweepState, event: ev.TrialStarted, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    if trial is None or trial.state != "queued":
        return
    transitions.begin(state, trial, event.at)
    if state.phase != "running":
        transitions.ask_to_end(state, trial, "sweep", out)
    elif state.end.is_interrupted:
        transitions.ask_to_end(state, trial, "interrupt", out)
    elif (
        state.room.draining and trial.slot is not None and state.slots[trial.slot].is_on(state.room.draining)
    ):
        transitions.preempt(state, trial, event.at, None, out)


def _on_trial_reported(state: SweepState, event: ev.TrialReported, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    if trial is not None and trial.state in ("running", "stopping"):
        reports.take_reports(state, trial, event, out)
        if state.rules.ends.has_end:
            sweep_end.note_report(state, trial, len(event.rows), event.at)
            sweep_end.plan_end_of(state, trial, event.at, out)


def _on_trial_busy(state: SweepState, event: ev.TrialBusy, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    slot = state.slots.get(trial.slot) if trial is not None and trial.slot is not None else None
    if trial is not None and slot is not None:
        transitions.hear(state, trial, event.at)
        slot.is_busy = not event.is_over
        state.tally.touch(slot.number)


def _on_checkpoint_committed(state: SweepState, event: ev.CheckpointCommitted, out: Out) -> None:
    trial = state.trials.get(event.trial)
    if trial is None:
        return
    if trial.attempt != event.attempt:
        reports.let_go(state, trial, event, out)
    elif event.number >= trial.results.next_checkpoint:
        trial = transitions.thaw(state, trial)
        reports.take_checkpoint(state, trial, event, out)
        if state.rules.ends.has_end:
            sweep_end.note_checkpoint(state, trial, event.at)
            sweep_end.plan_end_of(state, trial, event.at, out)


def _on_checkpoint_failed(state: SweepState, event: ev.CheckpointFailed, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    if trial is not None and event.number >= trial.results.next_checkpoint:
        trial = transitions.thaw(state, trial)
        trial.results.next_checkpoint = event.number + 1
        transitions.hear(state, trial, event.at)
        text = f"trial {trial.number}: checkpoint {event.number} could not be stored: {event.problem}"
        transitions.note(state, text)


def _on_checkpoint_damaged(state: SweepState, event: ev.CheckpointDamaged, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    if trial is not None and trial.state in ("running", "stopping"):
        reports.drop_damaged(state, trial, event, out)
        if trial.state == "running":
            transitions.ask_to_end(state, trial, "damage", out)


def _on_trial_noted(state: SweepState, event: ev.TrialNoted, out: Out) -> None:
    if event.trial not in state.trials:
        return
    if event.is_shared and any(each.text == event.text for each in state.noted):
        return
    transitions.note(state, event.text, trial=event.trial, count=event.count)


def _on_trial_returned(state: SweepState, event: ev.TrialReturned, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    if trial is not None and trial.state in ("running", "stopping"):
        attempts.return_attempt(state, trial, event.at, out)


def _on_trial_stopped(state: SweepState, event: ev.TrialStopped, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    if trial is None:
        return
    if trial.state == "stopping":
        attempts.stop_attempt(state, trial, event.at, out, event.where)
    elif trial.state == "running":
        # It was not asked: user code raised TrialStopped by itself, which is its way to say that it is done.
        attempts.return_attempt(state, trial, event.at, out)


def _on_trial_failed(state: SweepState, event: ev.TrialFailed, out: Out) -> None:
    trial = _current(state, event.trial, event.attempt)
    if trial is None or trial.state not in ON_SLOT:
        return
    if trial.state == "queued":
        transitions.begin(state, trial, event.at)
    attempts.fail_attempt(state, trial, event.failure, event.at, out)


def _on_trials_recalled(state: SweepState, event: ev.TrialsRecalled, out: Out) -> None:
    slot = state.slots.get(event.slot)
    if slot is None:
        return
    asked = transitions.recalling(state, slot)
    slot.recalling = tuple(pair for pair in slot.recalling if pair[0] not in event.trials)
    for number in event.trials:
        if number in asked:
            slot.queue.remove(number)
            transitions.requeue(state, state.trials[number], "recalled")
    transitions.mark_hungry(state, slot)


def _on_timer_fired(state: SweepState, event: ev.TimerFired, out: Out) -> None:
    state.clock.timer_at = None
    follow_up.take_due(state, event.at, out)


def _on_cancel_requested(state: SweepState, event: ev.CancelRequested, out: Out) -> None:
    transitions.stop_sweep(state, "cancelled", event.reason, event.at, out)


def _on_interrupt_requested(state: SweepState, event: ev.InterruptRequested, out: Out) -> None:
    transitions.interrupt(state, event.reason, out)


def _on_sweep_ended(state: SweepState, event: ev.SweepEnded, out: Out) -> None:
    if state.phase == "ending":
        state.phase, state.clock.ended_at = "ended", event.at
        sweep_end.count_until(state, event.at)
        state.meter.open_slots = 0


def _current(state: SweepState, number: int, attempt: int) -> Trial | None:
    trial = state.trials.get(number)
    return trial if trial is not None and trial.attempt == attempt else None


# Each handler takes just the event type that it is listed under; a dict cannot say that to the type checker.
_HANDLERS: Final[dict[type[ev.Event], Callable[[SweepState, Never, Out], None]]] = {
    ev.ControllerStarted: _on_controller_started,
    ev.SpecChanged: _on_spec_changed,
    ev.CapacityChanged: _on_capacity_changed,
    ev.ShareChanged: sharing.take,
    ev.SlotOpened: _on_slot_opened,
    ev.SlotDelayed: _on_slot_delayed,
    ev.NodeDraining: _on_node_draining,
    ev.DemandStuck: _on_demand_stuck,
    ev.StorageStalled: _on_storage_stalled,
    ev.ClockMoved: _on_clock_moved,
    ev.SlotFailed: _on_slot_failed,
    ev.SlotLost: _on_slot_lost,
    ev.ConfigsSuggested: _on_configs_suggested,
    ev.TrialStarted: _on_trial_started,
    ev.TrialReported: _on_trial_reported,
    ev.TrialBusy: _on_trial_busy,
    ev.CheckpointCommitted: _on_checkpoint_committed,
    ev.CheckpointFailed: _on_checkpoint_failed,
    ev.CheckpointDamaged: _on_checkpoint_damaged,
    ev.TrialNoted: _on_trial_noted,
    ev.TrialReturned: _on_trial_returned,
    ev.TrialStopped: _on_trial_stopped,
    ev.TrialFailed: _on_trial_failed,
    ev.TrialsRecalled: _on_trials_recalled,
    ev.TimerFired: _on_timer_fired,
    ev.CancelRequested: _on_cancel_requested,
    ev.InterruptRequested: _on_interrupt_requested,
    ev.SweepEnded: _on_sweep_ended,
}
