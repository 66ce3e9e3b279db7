"""Invariants of every state, after every event. Checked by the tests and by the simulator."""

from __future__ import annotations

from collections import Counter

from raysweep.core.handlers import retention
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import is_preempted
from raysweep.core.vocabulary.lifecycle import FINAL, ON_SLOT


def check(state: SweepState) -> None:
    """Check the state.

    Raises:
        AssertionError: names the invariant that does not hold, and for which trial or slot.
    """
    _check_trials(state)
    _check_slots(state)
    _check_top(state)
    _check_ends(state)
    _check_tally(state)


def _check_trials(state: SweepState) -> None:
    line = state.line
    counts = Counter(trial.state for trial in state.trials.values())
    kept = {name: number for name, number in line.counts.items() if number}
    assert dict(counts) == kept, f"counts {kept} are not those of the trials: {dict(counts)}"
    pending = [number for number, trial in state.trials.items() if trial.state == "pending"]
    assert list(line.pending) == pending, f"pending {list(line.pending)} != {pending}"
    waiting = [number for number, trial in state.trials.items() if trial.state == "waiting"]
    assert sorted(line.waiting) == waiting, f"waiting {sorted(line.waiting)} != {waiting}"
    for number, trial in state.trials.items():
        assert trial.number == number
        assert (number in line.active) == (trial.state not in FINAL), f"trial {number}: active or final"
        assert (trial.slot is not None) == (trial.state in ON_SLOT), (
            f"trial {number}: {trial.state}, slot {trial.slot}"
        )
        assert (trial.stop_reason is not None) == (trial.state == "stopping"), f"trial {number}: stop reason"
        assert trial.turn is None or trial.state in ("queued", "stopping"), f"trial {number}: turn"
        assert trial.ancestry.origin is None or not trial.checkpoints, (
            f"trial {number}: another's checkpoint, and own"
        )
        assert (trial.due_at is not None) == (trial.state == "waiting"), f"trial {number}: due time"
        assert trial.due_at == line.waiting.get(number), f"trial {number}: due at another time"
        assert trial.results.overrun <= trial.results.reports, f"trial {number}: more overrun than reports"
        attempts = [ended.attempt for ended in trial.attempts]
        assert attempts == sorted(set(attempts)), f"trial {number}: attempts {attempts}"
        assert (trial.ended_at is not None) == (trial.state in FINAL), f"trial {number}: end time"
        numbers = [checkpoint.number for checkpoint in trial.checkpoints]
        assert numbers == sorted(set(numbers)), f"trial {number}: checkpoints {numbers}"
        assert retention.kept(state.rules.checkpoints, trial.checkpoints) == trial.checkpoints, (
            f"trial {number}: more checkpoints than its policy keeps: {numbers}"
        )
        starts = [start for start, _ in trial.ancestry.lineage]
        assert starts == sorted(set(starts)), f"trial {number}: configs from {starts}"
        assert starts[:1] in ([], [0]), f"trial {number}: no config from the start: {starts}"
    assert list(state.trials) == list(range(state.search.suggested)), (
        "trials are numbered in the order of suggestion"
    )


def _check_slots(state: SweepState) -> None:
    line = state.line
    limit = state.rules.slots.max_concurrent
    assert limit is None or len(state.slots) <= limit, (
        f"{len(state.slots)} slots, max_concurrent_trials={limit}"
    )
    for slot in state.slots.values():
        for position, number in enumerate(slot.queue):
            trial = state.trials[number]
            assert trial.needs.size == slot.needs.size, (
                f"trial {number} needs {trial.needs.size!r}, has {slot.needs.size!r}"
            )
            assert trial.slot == slot.number, (
                f"trial {number} is in the queue of slot {slot.number}, not {trial.slot}"
            )
            is_head = position == 0
            assert is_head or trial.state == "queued", (
                f"trial {number} runs behind another in slot {slot.number}"
            )
        assert not slot.queue or slot.is_open, f"slot {slot.number} has trials but is not open"
        assert slot.is_hungry == (slot.number in line.hungry), f"slot {slot.number}: hungry mark"
    are_loaded = [bool(state.slots[number].queue) for number in line.hungry if number in state.slots]
    assert are_loaded == sorted(are_loaded), "a hungry slot that is idle stands behind one that is not"
    large = [number for number in line.active if state.trials[number].is_large]
    assert line.hungry_for_memory == len(large), f"{line.hungry_for_memory} hungry for memory: {large}"
    assert len(set(line.hungry)) == len(line.hungry), "a slot is hungry twice"
    assert all(number in state.slots for number in line.hungry), "a hungry slot is gone"
    queued = sorted(number for slot in state.slots.values() for number in slot.queue)
    on_slot = [number for number, trial in state.trials.items() if trial.state in ON_SLOT]
    assert queued == on_slot, f"trials on slots {on_slot} are not those in the queues {queued}"


def _check_top(state: SweepState) -> None:
    """Of the trials that are done, none but the best keep checkpoints."""
    ranking = state.ranking
    limit = state.rules.checkpoints.keep_top
    assert not state.work.unranked, f"trials are not ranked: {state.work.unranked}"
    if limit is None:
        assert not ranking.top
        return
    assert len(ranking.top) <= limit, f"more than {limit} trials keep checkpoints: {ranking.top}"
    for number, trial in state.trials.items():
        if trial.state in retention.RANKED and number not in ranking.top:
            assert trial.checkpoint is None, f"trial {number} is not of the best, and keeps checkpoints"


def _check_ends(state: SweepState) -> None:
    end = state.end
    if state.phase in ("ending", "ended"):
        assert not state.line.active, (
            f"the sweep is {state.phase}, but {list(state.line.active)} have not ended"
        )
        assert end.status is not None
    assert (end.status is None) == (state.phase == "running"), f"phase {state.phase}, status {end.status}"
    assert (state.clock.ended_at is not None) == (state.phase == "ended")


def _check_tally(state: SweepState) -> None:
    """Check that the indexes equal what a search finds."""
    tally, slots = state.tally, state.slots.values()
    assert tally.open_slots == sum(slot.is_open for slot in slots), f"{tally.open_slots} slots are open"
    assert tally.busy_slots == sum(bool(slot.queue) for slot in slots), f"{tally.busy_slots} slots are busy"
    idle = [number for number in state.line.hungry if not state.slots[number].queue]
    assert state.line.hungry.sorted(tally.idle) == idle, f"idle slots {tally.idle} are not {idle}"
    vacated = [slot.number for slot in slots if slot.is_leaving and not slot.queue]
    borrowed = [checkpoint for trial in state.trials.values() for checkpoint in trial.borrowed]
    assert tally.pins == Counter(each.uri for each in borrowed), f"pinned {tally.pins}, needed {borrowed}"
    assert not state.work.undecided, f"verdicts are left over: {state.work.undecided}"
    assert tally.vacated == vacated, f"vacated slots {tally.vacated} are not {vacated}"
    large = [slot for slot in slots if slot.is_large]
    assert tally.large_slots == large, f"large slots {tally.large_slots} are not {large}"
    nodes = Counter(slot.node for slot in slots if slot.is_open)
    assert +tally.nodes == nodes, f"open slots by node {tally.nodes} are not {nodes}"
    loaded = max(slots, key=lambda slot: len(slot.queue), default=None)
    expected = loaded if loaded is not None and len(loaded.queue) > 1 else None
    assert tally.most_loaded is expected, f"most loaded {tally.most_loaded} is not {expected}"
    hungry = {n for n, trial in state.trials.items() if trial.is_large}
    assert hungry == tally.large, f"trials with more memory {tally.large} are not {hungry}"
    _check_due(state)


def _check_due(state: SweepState) -> None:
    tally = state.tally
    waiting = min(((at, number) for number, at in state.line.waiting.items()), default=None)
    assert tally.next_due() == waiting, f"next due {tally.next_due()} is not {waiting}"
    heads = [(slot, state.trials[slot.queue[0]]) for slot in state.slots.values() if slot.queue]
    running = [(slot, trial) for slot, trial in heads if trial.state == "running"]
    reporting = [slot for slot, trial in heads if trial.state == "running" or is_preempted(trial)]
    heard = min(((slot.heard_at, slot.number) for slot in reporting if not slot.is_busy), default=None)
    bound = tally.silent_since_or_later()
    assert heard is None or (bound is not None and bound <= heard[0]), f"bound {bound} is behind {heard}"
    assert tally.silent_since() == heard, f"silent {tally.silent_since()} is not {heard}"
    began = [(trial.attempt_started_at, slot.number) for slot, trial in running]
    started = min((each for each in began if each[0] is not None), default=None)
    assert tally.running_since() == started, f"running {tally.running_since()} is not {started}"
