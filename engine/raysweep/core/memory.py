"""Trials that ran out of memory: larger slots for them, and what becomes of those that no node can hold.

| the trial needs | what is done |
|---|---|
| what a node has | a slot is opened for it, one at a time; slots that fall idle make room for it |
| more than any node has | *out of reach*: it stays in the line, and no slot is opened or closed for it |
| the same, and nothing else is left to do | it waits `placement_timeout_s` for such a node; then it fails |

A large slot that cannot be started, several times in a row, is out of reach as well. Where the wait is over
and no trial has a result yet, none fails: the sweep is left, and can be resumed where there are such nodes.
That is what helps whoever is called at night: results are not held up by a trial that has none, and what
could still bring the first ones is not thrown away.
"""

from __future__ import annotations

from raysweep.core import ends, moves
from raysweep.core.commands import Command
from raysweep.core.failures import Failure
from raysweep.core.state import SweepState
from raysweep.core.trial import Slot, Trial

Out = list[Command]


def fits(trial: Trial, slot: Slot) -> bool:
    """Whether the slot has the memory that the trial needs."""
    return trial.memory_bytes is None or (slot.memory_bytes or 0) >= trial.memory_bytes


def is_out_of_reach(state: SweepState, trial: Trial) -> bool:
    """Whether the trial needs more memory than can be had at present."""
    need = trial.memory_bytes
    if need is None or state.behaviour < 2:
        return False
    if 0 < state.largest_memory < need:
        return True
    return state.slot_failures >= moves.MAX_SLOT_FAILURES and not _has_slot_of(state, need)


def out_of_reach(state: SweepState) -> list[Trial]:
    """The pending trials that need more memory than can be had at present."""
    if not state.hungry_for_memory:
        return []
    return [trial for trial in large_pending(state) if is_out_of_reach(state, trial)]


def large_pending(state: SweepState) -> list[Trial]:
    """The pending trials that need more memory, in the line's order."""
    trials = (state.trials[number] for number in sorted(state.tally.large))
    return [trial for trial in trials if trial.state == "pending"]


def count_in_reach(state: SweepState) -> int:
    """How many pending trials slots can be had for."""
    return len(state.pending) - len(out_of_reach(state))


def place(state: SweepState, out: Out) -> None:
    """Make room for trials that ran out of memory: they need slots of another shape.

    One is opened at a time; until it has its place, slots that fall idle are closed to make room for it.
    """
    if state.behaviour >= 2:
        _close_hopeless(state, out)
    wanted = [trial for trial in large_pending(state) if not is_out_of_reach(state, trial)]
    if not state.hungry_for_memory:
        idle = state.tally.idle
        large = (slot.number for slot in state.tally.large_slots)
        for number in state.hungry.sorted(number for number in large if number in idle):
            moves.close(state, state.slots[number], out)
    elif is_opening(state):
        for slot in moves.idle(state):
            moves.close(state, slot, out)
    elif wanted:
        need = max(trial.memory_bytes or 0 for trial in wanted)
        if _has_slot_of(state, need):
            return
        if len(state.slots) >= moves.slot_limit(state):
            if not state.tally.idle:
                return
            moves.close(state, moves.idle(state)[0], out)
        moves.open_slot(state, out, need)
    state.largest_slot_bytes = max((slot.memory_bytes or 0 for slot in state.tally.large_slots), default=0)


def is_opening(state: SweepState) -> bool:
    """Whether a large slot is waiting for its place."""
    return any(not slot.is_open for slot in state.tally.large_slots)


def watch(state: SweepState, at: float) -> None:
    """Note since when nothing is left to do but what is out of reach."""
    beyond = out_of_reach(state)
    is_alone = beyond and state.is_exhausted and len(state.active) == len(beyond) and state.capacity
    if not is_alone:
        state.no_memory_since = None
    elif state.no_memory_since is None:
        state.no_memory_since = at
        wait = f"waited for during {state.rules.placement_timeout_s:g} s (failure.placement_timeout_s)"
        moves.note(state, f"{_missing(state, beyond)}; {wait}")


def due_at(state: SweepState) -> float | None:
    """When the wait for more memory is over; None: nobody waits for it."""
    if state.no_memory_since is None or state.phase != "running" or state.is_interrupted:
        return None
    return state.no_memory_since + state.rules.placement_timeout_s


def give_up(state: SweepState, at: float, out: Out) -> None:
    """End the wait: what has results ends with them, what has none is left as it is, to be resumed."""
    beyond = out_of_reach(state)
    problem = f"{_missing(state, beyond)}; waited {state.rules.placement_timeout_s:g} s for more"
    moves.note(state, problem)
    if not state.counts.get("completed") and not state.counts.get("stopped"):
        moves.interrupt(state, problem, out, fault="infrastructure")
        return
    for trial in beyond:
        if trial.state == "pending":
            failure = Failure(origin="memory", type="OutOfMemoryError", message=problem)
            ends.give_up_pending(state, trial, failure, at, out)


def _has_slot_of(state: SweepState, need: int) -> bool:
    return any((slot.memory_bytes or 0) >= need for slot in state.tally.large_slots)


def _close_hopeless(state: SweepState, out: Out) -> None:
    """The node that a slot was to come up on has gone: nothing else is to wait for that one."""
    most = state.largest_memory
    for slot in [slot for slot in state.tally.large_slots if not slot.is_open]:
        if 0 < most < (slot.memory_bytes or 0):
            moves.close(state, slot, out)


def _missing(state: SweepState, beyond: list[Trial]) -> str:
    first, others = beyond[0], len(beyond) - 1
    need, most = (first.memory_bytes or 0) / 2**30, state.largest_memory / 2**30
    has = f"the largest node offers {most:.3g} GiB" if 0 < most < need else "no worker with that starts"
    more = f"; so do {others} more trials" if others else ""
    return f"trial {first.number} ran out of memory: it needs {need:.3g} GiB, and {has}{more}"
