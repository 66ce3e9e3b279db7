"""Trials that need another slot than the usual: they ran out of memory, or their config asks for more.

| the trial needs | what is done |
|---|---|
| what a node has | a slot is opened for it, one at a time; slots that fall idle make room for it |
| more than any node has | *out of reach*: it stays in the line, and no slot is opened or closed for it |
| the same, and nothing else is left to do | it waits `placement_timeout_s` for such a node; then it fails |
| the same, as its scheduler resized it | it continues with what it had, at once |

A large slot that cannot be started, several times in a row, is out of reach as well. Where the wait is over
and no trial has a result yet, none fails: the sweep is left, and can be resumed where there are such nodes.
That helps the person on call: results are not held up by a trial that has none, and what
could still bring the first ones is not thrown away.

A slot with more memory does for every trial of its size; trials of another size (`resources.by_config`: CPUs,
GPUs, custom resources, the members of a gang) see what they were given, and get just that. Where configs say
what trials need, many may be large: one slot of each size then serves them, in the line's order, while usual
trials have the others; more are opened when no usual trial waits. Where trials are decided in their order
(`sequential`), the large ones keep their places in it.
"""

from __future__ import annotations

from raysweep.core.handlers import attempts, continuations, sequential, sizes, transitions
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Slot, Trial
from raysweep.core.vocabulary.commands import Command
from raysweep.core.vocabulary.failures import Failure
from raysweep.specs.trial.bundles import show_bundle

Out = list[Command]


def fits(trial: Trial, slot: Slot) -> bool:
    """True if the slot is of the trial's size, and has the memory that it needs."""
    needs, has = trial.needs, slot.needs
    if needs.size != has.size:
        return False
    return needs.memory_bytes is None or (has.memory_bytes or 0) >= needs.memory_bytes


def is_out_of_reach(state: SweepState, trial: Trial) -> bool:
    """True if the trial needs more than can be had at present."""
    if not trial.is_large:
        return False
    if 0 < state.room.largest_memory < (trial.needs.memory_bytes or 0) or sizes.is_beyond(state, trial):
        return True
    return state.room.slot_failures >= transitions.MAX_SLOT_FAILURES and not _has_slot_for(state, trial)


def out_of_reach(state: SweepState) -> list[Trial]:
    """The pending trials that need more than can be had at present."""
    if not state.line.hungry_for_memory:
        return []
    return [trial for trial in large_pending(state) if is_out_of_reach(state, trial)]


def large_pending(state: SweepState) -> list[Trial]:
    """The pending trials that need another slot than the usual, in the line's order."""
    large, pending = state.tally.large, state.line.pending
    numbers = large if len(large) <= len(pending) else [number for number in pending if number in large]
    trials = (state.trials[number] for number in sorted(numbers))
    return [trial for trial in trials if trial.state == "pending"]


def count_in_reach(state: SweepState) -> int:
    """Number of pending trials that slots can be had for."""
    pending = len(state.line.pending)
    return pending - len(out_of_reach(state)) if state.line.hungry_for_memory else pending


def place(state: SweepState, out: Out) -> None:
    """Make room for trials that need slots of another shape.

    One is opened at a time; until it has its place, slots that fall idle are closed to make room for it.
    """
    if state.rules.slots.needs:
        _undo_resizes(state)
    _close_hopeless(state, out)
    wanted = [trial for trial in in_turn(state) if not is_out_of_reach(state, trial)]
    if not state.line.hungry_for_memory:
        for slot in _idle_large(state):
            transitions.close(state, slot, out)
    elif is_opening(state):
        _make_way(state, wanted, out)
    elif wanted and not transitions.excess(state) and (trial := _next(state, wanted)) is not None:
        if len(state.slots) >= transitions.slot_limit(state):
            spare = _spare(state, wanted)
            if not spare:
                return
            transitions.close(state, spare[0], out)
        transitions.open_slot(state, out, trial.needs)
        if _is_last_event(state, wanted):
            _make_way(state, wanted, out)
    elif state.rules.slots.needs and len(wanted) < count_in_reach(state):
        # What waits cannot have those of a size of which no trial waits.
        for slot in _idle_large(state):
            if slot.needs.size and not any(fits(trial, slot) for trial in wanted):
                transitions.close(state, slot, out)


def _undo_resizes(state: SweepState) -> None:
    """Undo resizes that no node can hold: a scheduler knows no nodes. Such a trial continues as it was."""
    for trial in out_of_reach(state):
        needed = _needed(state, trial)
        if continuations.undo_resize(state, trial):
            transitions.note(state, f"trial {trial.number} keeps its resources: its scheduler set {needed}")


def _make_way(state: SweepState, wanted: list[Trial], out: Out) -> None:
    """Close the idle slots, whose room the one that is opening may need."""
    kept = _serving(state, wanted)
    for slot in transitions.idle(state):
        if slot.number not in kept:
            transitions.close(state, slot, out)


def _is_last_event(state: SweepState, wanted: list[Trial]) -> bool:
    """True if nothing but the place of the slot that opens is waited for: no later event is to act on."""
    is_quiet = not (state.tally.busy_slots or state.line.waiting or _waits_usual(state))
    return is_quiet and state.search.is_exhausted and not _matched(state, wanted)


def in_turn(state: SweepState) -> list[Trial]:
    """The large trials that may begin, in the line's order."""
    large = large_pending(state)
    if not large or not state.rules.slots.needs or not sequential.is_kept(state):
        return large
    reachable = [n for n in state.line.pending if not is_out_of_reach(state, state.trials[n])]
    return [trial for trial in large if reachable and trial.number == sequential.next_of(state, reachable)]


def _idle_large(state: SweepState) -> list[Slot]:
    """In the line's order."""
    idle = state.tally.idle
    large = (slot.number for slot in state.tally.large_slots)
    return [state.slots[number] for number in state.line.hungry.sorted(n for n in large if n in idle)]


def _next(state: SweepState, wanted: list[Trial]) -> Trial | None:
    """The trial for which the next large slot is to be; None: those that are there do."""
    for size in dict.fromkeys(trial.needs.size for trial in wanted):
        most = max(
            (t for t in wanted if t.needs.size == size), key=lambda trial: trial.needs.memory_bytes or 0
        )
        if not _has_slot_for(state, most):
            return most
    if not state.rules.slots.needs or state.room.slot_failures or _waits_usual(state):
        return None
    served = {trial.number for trial, _ in _matched(state, wanted)}
    return next((trial for trial in wanted if trial.number not in served), None)


def _waits_usual(state: SweepState) -> bool:
    """True if a trial waits for which a usual slot is enough."""
    return any(not state.trials[number].is_large for number in state.line.pending)


def _matched(state: SweepState, wanted: list[Trial]) -> list[tuple[Trial, Slot]]:
    """The pairs of a trial and an idle large slot that fits it, in the line's order."""
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
    if not state.rules.slots.needs:
        return transitions.idle(state)
    taken = {slot.number for _, slot in _matched(state, wanted)}
    return [slot for slot in transitions.idle(state) if slot.number not in taken]


def _serving(state: SweepState, wanted: list[Trial]) -> set[int]:
    """The idle slots that do for a trial as well as the one that is opening would."""
    if not state.rules.slots.needs:
        return set()
    opening = next(slot for slot in state.tally.large_slots if not slot.is_open)
    idle = [slot for slot in _idle_large(state) if slot.needs.size == opening.needs.size]
    does = [slot for slot in idle if (slot.needs.memory_bytes or 0) >= (opening.needs.memory_bytes or 0)]
    return {slot.number for slot in does if any(fits(trial, slot) for trial in wanted)}


def is_opening(state: SweepState) -> bool:
    """True if a large slot is waiting for its place."""
    return state.tally.has_large and any(not slot.is_open for slot in state.tally.large_slots)


def watch(state: SweepState, at: float) -> None:
    """Note since when nothing is left to do but what is out of reach."""
    room = state.room
    beyond = out_of_reach(state)
    is_alone = (
        beyond and state.search.is_exhausted and len(state.line.active) == len(beyond) and room.capacity
    )
    if not is_alone:
        room.no_memory_since = None
    elif room.no_memory_since is None:
        room.no_memory_since = at
        wait = f"waited for during {state.rules.slots.placement_timeout_s:g} s (failure.placement_timeout_s)"
        transitions.note(state, f"{_missing(state, beyond)}; {wait}")


def due_at(state: SweepState) -> float | None:
    """The time at which the wait for more memory is over; None: no trial waits for it."""
    if state.room.no_memory_since is None or state.phase != "running" or state.end.is_interrupted:
        return None
    return state.room.no_memory_since + state.rules.slots.placement_timeout_s


def give_up(state: SweepState, at: float, out: Out) -> None:
    """End the wait: what has results ends with them, what has none is left as it is, to be resumed."""
    beyond = out_of_reach(state)
    problem = f"{_missing(state, beyond)}; waited {state.rules.slots.placement_timeout_s:g} s for more"
    transitions.note(state, problem)
    state.room.no_memory_since = None  # what is resumed, or extended, upon this waits as long in its turn
    if not state.line.counts.get("completed") and not state.line.counts.get("stopped"):
        transitions.interrupt(state, problem, out, fault="infrastructure")
        return
    for trial in beyond:
        if trial.state == "pending":
            attempts.give_up_pending(state, trial, _failure(state, trial, problem), at, out)


def _failure(state: SweepState, trial: Trial, problem: str) -> Failure:
    """The failure of a trial that could not be placed: by its size, or else its memory."""
    is_size = trial.needs.size and (trial.needs.memory_bytes is None or trial.needs.size in state.room.beyond)
    if is_size:
        return Failure(origin="placement", type="NoRoomError", message=problem)
    return Failure(origin="memory", type="OutOfMemoryError", message=problem)


def _has_slot_for(state: SweepState, trial: Trial) -> bool:
    return any(fits(trial, slot) for slot in state.tally.large_slots)


def _close_hopeless(state: SweepState, out: Out) -> None:
    """The node that a slot was to come up on has gone: nothing else is to wait for that one."""
    most = state.room.largest_memory
    for slot in [slot for slot in state.tally.large_slots if not slot.is_open]:
        if 0 < most < (slot.needs.memory_bytes or 0) or sizes.is_beyond(state, slot):
            transitions.close(state, slot, out)


def _missing(state: SweepState, beyond: list[Trial]) -> str:
    first, others = beyond[0], len(beyond) - 1
    more = f"; so do {others} more trials" if others else ""
    field = (
        "".join(state.rules.slots.needs[0].field.partition(".by_config")[:2])
        if state.rules.slots.needs
        else ""
    )
    is_beyond = sizes.is_beyond(state, first)
    is_size = is_beyond or first.needs.memory_bytes is None
    is_by_config = field and (not first.attempts or (is_size and first.needs.size))
    why = f"is large by its config ({field})" if is_by_config else "ran out of memory"
    return f"trial {first.number} {why}: it needs {_needed(state, first)}{more}"


def _needed(state: SweepState, trial: Trial) -> str:
    """The need of a trial that is out of reach, and what the cluster offers."""
    if sizes.is_beyond(state, trial):
        return f"{_shape(state, trial)}, for which no node has room"
    need, most = (trial.needs.memory_bytes or 0) / 2**30, state.room.largest_memory / 2**30
    if 0 < most < need:
        return f"{need:.3g} GiB, and the largest node offers {most:.3g} GiB"
    what = (
        _shape(state, trial) if trial.needs.size and trial.needs.memory_bytes is None else f"{need:.3g} GiB"
    )
    return f"{what}, and no worker with that starts"


def _shape(state: SweepState, trial: Trial) -> str:
    """The resources of a trial that is large by its size; of a gang all its workers."""
    if state.spec.gang is None:
        return trial.needs.size
    bundles = state.spec.shape_for(trial.needs).bundles
    return f"{len(bundles)} worker{'s' * (len(bundles) > 1)} of {show_bundle(bundles[0])}"
