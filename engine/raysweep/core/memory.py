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

Where configs say what trials need (`resources.by_config`), many may be large. One slot then serves them all,
in the line's order, while usual trials have the others; more are opened when no usual trial waits.
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
    large, pending = state.tally.large, state.pending
    numbers = large if len(large) <= len(pending) else [number for number in pending if number in large]
    trials = (state.trials[number] for number in sorted(numbers))
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
        kept = _serving(state, wanted)
        for slot in moves.idle(state):
            if slot.number not in kept:
                moves.close(state, slot, out)
    elif wanted:
        need = _next_need(state, wanted)
        if need is None:
            return
        if len(state.slots) >= moves.slot_limit(state):
            spare = _spare(state, wanted)
            if not spare:
                return
            moves.close(state, spare[0], out)
        moves.open_slot(state, out, need)
    state.largest_slot_bytes = max((slot.memory_bytes or 0 for slot in state.tally.large_slots), default=0)


def _next_need(state: SweepState, wanted: list[Trial]) -> int | None:
    """What the next large slot is to have; None: those that are there do."""
    most = max(trial.memory_bytes or 0 for trial in wanted)
    if not _has_slot_of(state, most):
        return most
    if state.rules.memory_by_config is None or state.slot_failures or _waits_usual(state):
        return None
    unserved = _unserved(state, wanted)
    return unserved[0].memory_bytes if unserved else None


def _waits_usual(state: SweepState) -> bool:
    """Whether a trial waits that any slot can take."""
    return any(state.trials[number].memory_bytes is None for number in state.pending)


def _unserved(state: SweepState, wanted: list[Trial]) -> list[Trial]:
    """Those for which no large slot is idle, in the line's order."""
    served = {trial.number for trial, _ in _matched(state, wanted)}
    return [trial for trial in wanted if trial.number not in served]


def _matched(state: SweepState, wanted: list[Trial]) -> list[tuple[Trial, Slot]]:
    """Which trial can have which idle large slot, in the line's order."""
    idle = [slot for slot in state.tally.large_slots if slot.number in state.tally.idle]
    matched: list[tuple[Trial, Slot]] = []
    for trial in wanted if idle else ():
        slot = next((slot for slot in idle if fits(trial, slot)), None)
        if slot is not None:
            idle.remove(slot)
            matched.append((trial, slot))
    return matched


def _spare(state: SweepState, wanted: list[Trial]) -> list[Slot]:
    """The idle slots that may be closed for a larger one: none that a large trial is about to have."""
    if state.rules.memory_by_config is None:
        return moves.idle(state)
    taken = {slot.number for _, slot in _matched(state, wanted)}
    return [slot for slot in moves.idle(state) if slot.number not in taken]


def _serving(state: SweepState, wanted: list[Trial]) -> set[int]:
    """The idle slots that do for a trial as well as the one that is opening would."""
    if state.rules.memory_by_config is None:
        return set()
    opening = max(slot.memory_bytes or 0 for slot in state.tally.large_slots if not slot.is_open)
    idle = [slot for slot in state.tally.large_slots if slot.number in state.tally.idle]
    does = [slot for slot in idle if (slot.memory_bytes or 0) >= opening]
    return {slot.number for slot in does if any(fits(trial, slot) for trial in wanted)}


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
    if state.behaviour >= 6:
        state.no_memory_since = None  # what is resumed, or extended, upon this waits as long in its turn
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
    is_planned = state.rules.memory_by_config is not None and not first.attempts
    why = "is large by its config (resources.by_config)" if is_planned else "ran out of memory"
    return f"trial {first.number} {why}: it needs {need:.3g} GiB, and {has}{more}"
