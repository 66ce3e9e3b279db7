"""The next steps from a state: hand trials out, ask for more, open and close slots, keep time, end."""

from __future__ import annotations

from typing import Final, cast

from pydantic import JsonValue

from raysweep.core.handlers import (
    assignment,
    attempts,
    large_trials,
    reopen,
    sequential,
    sharing,
    sweep_end,
    transitions,
    unreported,
    verdicts,
)
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Slot, Trial
from raysweep.core.vocabulary.commands import (
    Command,
    EndSweep,
    LeaveSweep,
    SetTimer,
    SuggestConfigs,
    SweepStatus,
)

Out = list[Command]

MIN_ASK: Final = 16
MAX_ASK: Final = 256
MAX_AHEAD: Final = 2048
# A target is no limit: that a trial has reached it holds also where it is the last.
_LIMITS: Final = frozenset({"deadline", "budget", "plateau"})


def advance(state: SweepState, at: float, out: Out) -> None:
    """Emit whatever follows from the state as it is now."""
    rules = state.rules
    line, end, room = state.line, state.end, state.room
    if end.target_trial is not None and state.phase == "running":
        sweep_end.note_target(state)
        why = f"trial {end.target_trial} reached the target {rules.ends.target:g}"
        transitions.stop_sweep(state, "target", why, at, out)
    if state.work.undecided:
        verdicts.settle(state, at, out)
    if state.phase == "running" and not end.is_interrupted:
        if line.counts.get("paused") and _has_only_paused(state):
            _wake(state, at, out)
        if room.draining or room.excluded:
            _close_leaving(state, out)
        if room.share is not None:
            sharing.give_back(state, at, out)
        if line.hungry_for_memory or state.tally.may_have_large:
            large_trials.place(state, out)
        may_begin = not rules.ends.has_end or sweep_end.admits(state, at)
        if may_begin and not (line.waiting and sequential.holds(state)):
            if line.hungry_for_memory and state.tally.has_large:
                assignment.assign_large(state, out)
            if line.pending and line.hungry:
                assignment.assign(state, out)
        if not state.search.is_exhausted:
            if may_begin:
                _suggest(state, out)
        elif not line.active and not end.has_cut:
            if _complete(state):
                # What goes further wants slots, as if it had been there from the start of this pass.
                advance(state, at, out)
                return
        elif line.hungry:
            assignment.settle(state, out)
        if not may_begin or (end.has_cut and not line.active):
            sweep_end.end_if_idle(state, at, out)
        elif len(state.slots) < room.capacity and state.phase == "running":
            _open_slots(state, out)
        if line.hungry_for_memory or room.no_memory_since is not None:
            large_trials.watch(state, at)
    if state.phase == "stopping" or end.is_interrupted:
        _leave_when_quiet(state, at, out)
    if (
        rules.is_timed
        or line.waiting
        or state.clock.timer_at is not None
        or room.no_room_since is not None
        or room.no_memory_since is not None
    ) and state.phase in ("running", "stopping"):
        keep_time(state, out)


def _has_only_paused(state: SweepState) -> bool:
    """True if nothing but paused trials can run."""
    search = state.search
    is_asking = search.asked > search.suggested
    is_busy = state.tally.busy_slots or state.line.waiting or large_trials.count_in_reach(state)
    return search.is_exhausted and not (is_asking or is_busy)


def _wake(state: SweepState, at: float, out: Out) -> None:
    """Ask about what is paused, and about the rest where what is resumed needs more memory than there is."""
    verdicts.wake(state, at, out)
    # One that pauses and resumes the same trials for ever is not asked for ever.
    for _ in range(len(state.line.active)):
        if state.phase != "running" or not state.line.counts.get("paused") or not _has_only_paused(state):
            return
        verdicts.wake(state, at, out)


def _close_leaving(state: SweepState, out: Out) -> None:
    for number in state.tally.vacated:
        transitions.close(state, state.slots[number], out)


def _suggest(state: SweepState, out: Out) -> None:
    search = state.search
    if search.asked > search.suggested:
        return
    if state.rules.search.is_blind:
        slots, there = (
            max(len(state.slots), transitions.slot_limit(state)),
            large_trials.count_in_reach(state),
        )
        if there * 2 > max(MIN_ASK, 2 * transitions.MAX_DEPTH * slots):
            return  # enough however deep the slots are
        wanted = min(MAX_AHEAD, max(MIN_ASK, 2 * transitions.depth(state) * slots))
        if there * 2 > wanted:
            return
        count = min(MAX_ASK, wanted)
    else:
        # A config is only as good as what its searcher knows: ask when a slot is free, not before; or when
        # nothing is under way, as then it will never know more.
        idle = len(state.line.hungry) if not large_trials.count_in_reach(state) else 0
        idle = sequential.places(state, idle)
        count = idle if _count_moving(state) else max(1, idle)
    if count:
        search.asked = search.suggested + count
        out.append(SuggestConfigs(first=search.suggested, count=count))
        if state.rules.search.is_logged:
            search.log.append(~search.suggested)


def _count_moving(state: SweepState) -> int:
    """The trials of which the searcher can learn more: none is paused, or wants memory that no node has."""
    return len(state.line.active) - state.line.counts.get("paused", 0) - len(large_trials.out_of_reach(state))


def _needed_slots(state: SweepState) -> int:
    """The number of slots that there is work for: none is opened that would only be closed again."""
    line, rules = state.line, state.rules
    if state.search.is_exhausted:
        return state.tally.busy_slots + large_trials.count_in_reach(state) + len(line.waiting)
    active = len(line.active) - len(large_trials.out_of_reach(state)) - line.counts.get("paused", 0)
    if rules.search.max_trials is not None:
        return rules.search.max_trials - state.search.suggested + active
    # Who suggests late gives each slot one when it is there; how many there will be is not known.
    return active if rules.search.is_blind else transitions.slot_limit(state)


def _open_slots(state: SweepState, out: Out) -> None:
    limit = min(transitions.slot_limit(state), _needed_slots(state))
    if state.room.slot_failures >= transitions.MAX_SLOT_FAILURES:
        if limit > 0 and not state.slots:
            # Those that worked beside them have gone since: nothing would ever change.
            why = f"{state.room.slot_failures} workers in a row could not be started, and no other is left"
            transitions.interrupt(state, why, out, fault="infrastructure")
        return
    if large_trials.is_opening(state):
        return
    while len(state.slots) < limit:
        transitions.open_slot(state, out)


def _complete(state: SweepState) -> bool:
    """Every trial has ended: so has the sweep, unless some are to go further (True)."""
    done = state.line.counts.get("completed", 0) + state.line.counts.get("stopped", 0)
    # Where all have failed, a retry may come first; where there is no trial, none can go further.
    if (done or not state.trials) and reopen.extend(state):
        return True
    state.phase = "stopping"
    _name_end(state)
    return False


def _go_further(state: SweepState) -> bool:
    """True, and the sweep runs again, if its search has ended for good and trials are to go further now."""
    end = state.end
    if end.extend_to is None or end.status not in (*sweep_end.ENDS_THAT_STAY, "completed"):
        return False
    sweep_end.rest(state)
    state.phase, end.status, end.why, end.by = "running", None, "", None
    return True


def _name_end(state: SweepState) -> None:
    """Set the status of a sweep in which every trial has run to its own end."""
    end = state.end
    if end.of_search is not None:
        end.status = cast(SweepStatus, end.of_search["status"])
        end.why = str(end.of_search["why"])
        end.by = cast(dict[str, JsonValue] | None, end.of_search["ended_by"])
    elif state.line.counts.get("completed", 0) + state.line.counts.get("stopped", 0) or not state.trials:
        end.status, end.why = "completed", "every trial has ended"
    else:
        end.status, end.why = "failed", "every trial failed"
        end.fault = attempts.fault_of(state)


def _settle(state: SweepState) -> None:
    """A limit that has cut nothing has not ended the sweep: it has completed."""
    end = state.end
    is_done = end.of_search is None and (end.extend_to is None or end.status == "plateau")
    if end.status in _LIMITS and is_done and _has_run_all(state):
        end.by = None
        _name_end(state)


def _has_run_all(state: SweepState) -> bool:
    """True if every trial that the spec asks for has run to its own end: none was cut, none is missing."""
    if state.line.counts.get("cancelled") or state.line.active:
        return False
    wanted = sweep_end.wanted_trials(state)
    return state.search.is_exhausted or (wanted is not None and len(state.trials) >= wanted)


def _leave_when_quiet(state: SweepState, at: float, out: Out) -> None:
    end = state.end
    if state.phase == "stopping":
        # What slots give back, or searchers suggest, after the end has begun.
        transitions.cut_unbegun(state, at)
    if state.tally.busy_slots:
        return
    if state.phase == "stopping" and end.status is not None:
        _settle(state)
        if _go_further(state):
            advance(state, at, out)
            return
        if end.extend_to is not None and end.status in _LIMITS:
            why = f"no trial has gone further, as the sweep was ended by {end.why}"
            transitions.note(
                state, f"extend: {why}; raise that limit, and it follows once the sweep has completed"
            )
        state.phase = "ending"
        if state.rules.named:
            unreported.note_missing(state, "any trial")
        out.append(EndSweep(status=end.status, why=end.why))
    elif end.is_interrupted and not end.has_left:
        end.has_left = True
        out.append(LeaveSweep(why=end.why))


def take_due(state: SweepState, at: float, out: Out) -> None:
    """Do what the time has come for."""
    rules = state.rules
    if rules.ends.has_end:
        sweep_end.take_end(state, at, out)
    while (due := state.tally.next_due()) is not None and due[0] <= at:
        del state.line.waiting[due[1]]
        state.trials[due[1]].due_at = None
        transitions.requeue(state, state.trials[due[1]], "due")
    for number in _slots_due(state, at):
        slot = state.slots[number]
        _take_due_trial(state, slot, state.trials[slot.queue[0]], at, out)
    no_room = state.room.no_room_since
    is_over = no_room is not None and _is_over(no_room, rules.slots.placement_timeout_s, at)
    if is_over and not state.tally.busy_slots:
        waited = f"for {rules.slots.placement_timeout_s:g} s no node could hold a trial"
        why = f"{waited}: {state.room.no_room_problem}"
        transitions.interrupt(state, why, out, fault="infrastructure")
    no_memory_at = large_trials.due_at(state)
    if no_memory_at is not None and at >= no_memory_at:
        large_trials.give_up(state, at, out)


def _is_over(since: float, limit_s: float, at: float) -> bool:
    """True if so much time has passed: told by the moment that the timer was set to, to the last bit.

    A timer that fires at its time, and is told that it is not yet time, would be set to the same time again.
    """
    return at >= since + limit_s


def _slots_due(state: SweepState, at: float) -> list[int]:
    """The slots whose trial has run, or been silent, for too long."""
    limit_s, timeout_s = state.rules.limits.trial_time_s, state.rules.limits.report_timeout_s
    due: set[int] = set()
    if limit_s is not None:
        due |= state.tally.running_for(lambda since: _is_over(since, limit_s, at))
    if timeout_s is not None and not state.controller.is_stalled:
        due |= state.tally.silent_for(lambda since: _is_over(since, timeout_s, at))
    return sorted(due)


def _take_due_trial(state: SweepState, slot: Slot, trial: Trial, at: float, out: Out) -> None:
    limit, started_at = state.rules.limits.trial_time_s, trial.attempt_started_at
    timeout = state.rules.limits.report_timeout_s
    runs = trial.state == "running"
    if runs and limit is not None and started_at is not None and _is_over(started_at, limit, at):
        transitions.ask_to_end(state, trial, "limit", out)
    elif timeout is None or transitions.may_be_silent(state, slot):
        return
    elif _is_over(slot.heard_at, timeout, at):
        transitions.ask_to_end(state, trial, "hung", out, grace_s=0.0)


def keep_time(state: SweepState, out: Out) -> None:
    """Have the timer set to the next moment at which something is due."""
    rules, tally = state.rules, state.tally
    waiting = tally.next_due() if state.line.waiting else None
    times = [waiting[0]] if waiting is not None else []
    end = sweep_end.end_in_sight(state) if state.phase == "running" and rules.ends.has_end else None
    if end is not None:
        times.append(end.at)
    if rules.limits.trial_time_s is not None:
        since = tally.running_since()
        if since is not None:
            times.append(since[0] + rules.limits.trial_time_s)
    times += [due for due in (_no_room_due_at(state), large_trials.due_at(state)) if due is not None]
    if rules.limits.report_timeout_s is not None:
        due = _next_silence(state, rules.limits.report_timeout_s)
        if due is not None:
            times.append(due)
    at = min(times, default=None)
    if at != state.clock.timer_at:
        state.clock.timer_at = at
        out.append(SetTimer(at=at))


def _no_room_due_at(state: SweepState) -> float | None:
    """The time at which the wait for a place is over. While trials run, it has no limit."""
    if state.room.no_room_since is None or state.phase != "running" or state.end.is_interrupted:
        return None
    if state.tally.busy_slots:
        return None
    return state.room.no_room_since + state.rules.slots.placement_timeout_s


def _next_silence(state: SweepState, timeout_s: float) -> float | None:
    """The time at which the trial that has been silent for longest will have been so for too long.

    A timer that is early costs less than one that is set anew with each report: one that is set already, and
    not later than that, is left as it is.
    """
    tally, early = state.tally, state.clock.timer_at
    bound = tally.silent_since_or_later() if not state.controller.is_stalled else None
    if early is not None and (bound is None or early <= bound + timeout_s):
        return early
    since = tally.silent_since() if bound is not None else None
    due = since[0] + timeout_s if since is not None else None
    return early if early is not None and (due is None or early <= due) else due
