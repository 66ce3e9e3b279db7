"""The line of pending trials: which slot takes which, and what is taken back from a slot that has too many.

A slot may hold trials behind the one that it runs, where trials are short. Towards the end, when a slot falls
idle while another has such trials, they are recalled and handed out again. That cannot go in circles,
whatever trials, nodes and memory they prefer:

- A trial is put behind another only when no idle slot can take it (`hungry` has the idle ones in front, and
  a preference for another node is one for an idle slot there).
- A trial is recalled here only for an idle slot that can take it. What comes back takes that slot, or finds
  it taken by a trial that begins there at once.
- The head of a queue is never recalled here.

So each recall is paid for by a slot that fell idle before it, and by an attempt that goes to the head of a
queue after it. Slots fall idle when attempts end and when slots open: recalls are no more than these.
"""

from __future__ import annotations

from typing import Final

from raysweep.core.handlers import large_trials, sequential, transitions
from raysweep.core.seeds import trial_seed
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Slot, Trial
from raysweep.core.vocabulary.commands import Command, StartTrial
from raysweep.core.vocabulary.lifecycle import Cause

Out = list[Command]

# Each attempt numbers its checkpoints in a block of its own, behind all that is known of: what an earlier one
# stored unseen, while it or its controller was being lost, is never in the way. A block is more than any
# attempt can store.
CHECKPOINTS_AN_ATTEMPT: Final = 1_000_000_000
ATTEMPTS_A_GENERATION: Final = 1_000
# Ends of attempts that a scheduler has paused: the next continues from the checkpoint.
_PAUSES: Final[frozenset[Cause]] = frozenset({"paused", "resumed"})


def assign(state: SweepState, out: Out) -> None:
    """Hand trials to the slots that can take more, idle ones first."""
    depth = transitions.depth(state)
    pending, hungry, trials = state.line.pending, state.line.hungry, state.trials
    too_large: list[int] = []
    sized: list[int] = []  # for `assign_large` alone
    is_of_line = sequential.is_of_line(state)
    while pending and hungry:
        slot = state.slots[hungry.popleft()]
        if len(slot.queue) >= depth:
            slot.is_hungry = False
            continue
        if slot.needs.size:
            sized.append(slot.number)
            continue
        trial = trials[pending.popleft() if is_of_line else sequential.take_next(state)]
        if not large_trials.fits(trial, slot):
            too_large.append(trial.number)
            hungry.appendleft(slot.number)
            continue
        if trial.attempts and hungry:
            slot = _prefer_other_node(state, trial, slot)
        _start(state, trial, slot, out)
        if len(slot.queue) < depth:
            hungry.append(slot.number)
        else:
            slot.is_hungry = False
    for number in reversed(sized):
        (hungry.append if state.slots[number].queue else hungry.appendleft)(number)
    # One that is under way may have been taken before those with lower numbers.
    for number in sorted(too_large, reverse=True):
        transitions.enqueue(state, number)


def _prefer_other_node(state: SweepState, trial: Trial, slot: Slot) -> Slot:
    """A trial that failed on one node does better to try another, where one is free."""
    line = state.line
    if trial.attempts[-1].kind is None or trial.attempts[-1].node != slot.node:
        return slot
    for number in line.hungry:
        other = state.slots[number]
        if other.node != slot.node and not other.queue and large_trials.fits(trial, other):
            line.hungry.remove(number)
            line.hungry.appendleft(slot.number)
            return other
    return slot


def assign_large(state: SweepState, out: Out) -> None:
    """Hand large trials to the large slots that are idle, before the others' line comes to them."""
    line = state.line
    for trial in large_trials.in_turn(state):
        idle = state.tally.idle
        fit = [slot.number for slot in state.tally.large_slots if large_trials.fits(trial, slot)]
        in_order = line.hungry.sorted(number for number in fit if number in idle)
        if in_order:
            slot = state.slots[in_order[0]]
            line.pending.remove(trial.number)
            line.hungry.remove(slot.number)
            slot.is_hungry = False
            _start(state, trial, slot, out)


def settle(state: SweepState, out: Out) -> None:
    """Towards the end: spread what is queued over idle slots, and give back slots that nothing will need."""
    if large_trials.count_in_reach(state) or not state.tally.idle:
        return
    loaded = state.tally.most_loaded
    if loaded is not None:
        if not transitions.recalling(state, loaded):
            transitions.recall(state, loaded, _to_spread(state, loaded), out)
        return
    # What backs off, or is paused, will need a slot again.
    kept = len(state.line.waiting) + state.line.counts.get("paused", 0)
    if len(state.tally.idle) > kept:
        for slot in transitions.idle(state)[kept:]:
            transitions.close(state, slot, out)


def _to_spread(state: SweepState, loaded: Slot) -> list[int]:
    """The later half of what waits at a slot, as far as an idle one can take it."""
    queue = list(loaded.queue)
    later = queue[1 + (len(queue) - 1) // 2 :]
    idle = transitions.idle(state)
    return [number for number in later if any(large_trials.fits(state.trials[number], slot) for slot in idle)]


def _start(state: SweepState, trial: Trial, slot: Slot, out: Out) -> None:
    results = trial.results
    checkpoint = trial.checkpoint
    if checkpoint is None and results.iteration and trial.attempts[-1].end in _PAUSES:
        kind = state.spec.scheduler.kind
        text = f"scheduler {kind} pauses trials, and one without a checkpoint restarts from zero each time"
        transitions.note(state, f"{text}: report checkpoints, or use a scheduler that does not pause trials")
    transitions.move(state, trial, "assigned")
    # It is not known which of its nodes caused a gang's failure.
    trial.slot, trial.node = slot.number, "" if slot.others else slot.node
    trial.attempt += 1
    results.attempt_reports = 0
    trial.results.next_checkpoint = _first_checkpoint(state, trial)
    results.attempt_iteration = results.iteration = checkpoint.iteration if checkpoint else 0
    slot.queue.append(trial.number)
    state.tally.touch(slot.number)
    out.append(
        StartTrial(
            slot=slot.number,
            trial=trial.number,
            attempt=trial.attempt,
            config=trial.config,
            seed=trial_seed(state.seed, state.rules.search.seed_number(trial.number)),
            checkpoint=checkpoint.uri if checkpoint else None,
            iteration=results.iteration,
            next_checkpoint=trial.results.next_checkpoint,
            has_older=state.rules.checkpoints.falls_back and len(trial.checkpoints) > 1,
            saved=results.saved if state.spec.evaluate is not None else 0,
        )
    )


def _first_checkpoint(state: SweepState, trial: Trial) -> int:
    """The number of the attempt's first checkpoint: one that none before it can have used."""
    attempts = (state.controller.generation - 1) * ATTEMPTS_A_GENERATION + trial.attempt - 1
    begun_blocks = -(-trial.results.next_checkpoint // CHECKPOINTS_AN_ATTEMPT)
    return max(attempts, begun_blocks) * CHECKPOINTS_AN_ATTEMPT
