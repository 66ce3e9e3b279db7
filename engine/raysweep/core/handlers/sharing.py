"""The share of a cluster: what the sweep wants of it, and how slots beyond its share are given back.

A slot beyond the share is closed when it has no trial: whichever trial ends first gives its slot back. Where
a node is cleared for a slot of another sweep (`Room.kept`), the slots there are given back instead, and no
slot is opened before the other sweep has its own. Where a sweep with a nearer deadline waits for the slots
(`Room.is_hurried`), trials that have stored a checkpoint are asked for another one, and continue from it
later. A trial that never stored one would start anew: it keeps its slot until it ends.
"""

from __future__ import annotations

from collections.abc import Container
from math import ceil
from typing import Final

from raysweep.core.handlers import large_trials, sweep_end, transitions
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Slot
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.commands import Command

Out = list[Command]
_CAUTION: Final = 1.25
"""The factor above the mean duration of trials that a sweep counts on."""


def take(state: SweepState, event: ev.ShareChanged, out: Out) -> None:
    """The share is another."""
    room = state.room
    room.share, room.beside, room.is_hurried = event.slots, event.beside, event.is_hurried
    room.kept = dict(event.kept)


def forget(state: SweepState) -> None:
    """A new controller has not looked at the other sweeps yet."""
    state.room.share, state.room.beside, state.room.is_hurried, state.room.kept = None, 0, False, {}


def give_back(state: SweepState, at: float, out: Out) -> None:
    """Give back what is beyond the share: slots that idle now, and later those whose trials end.

    One that starts is closed once it is open: Ray may lose the resources of a placement group that is removed
    while an actor in it is being created.
    """
    surplus = _clear(state, out) if state.room.kept else {}
    excess = transitions.excess(state) - sum(surplus.values())
    for slot in transitions.idle(state)[::-1][: max(0, excess)]:
        transitions.close(state, slot, out)
    if state.room.is_hurried and transitions.excess(state):
        _pause(state, at, surplus, out)


def _clear(state: SweepState, out: Out) -> dict[str, int]:
    """Close the idle slots on nodes that are cleared; by node, how many more are to be given back there."""
    surplus = {node: -kept for node, kept in state.room.kept.items()}
    for slot in state.slots.values():
        for node in _cleared(slot, surplus):
            surplus[node] += 1
    for slot in transitions.idle(state)[::-1]:
        nodes = _cleared(slot, surplus)
        if any(surplus[node] > 0 for node in nodes):
            transitions.close(state, slot, out)
            for node in nodes:
                surplus[node] -= 1
    return {node: count for node, count in surplus.items() if count > 0}


def _cleared(slot: Slot, nodes: Container[str]) -> list[str]:
    """Those of the slot's nodes that are among these."""
    return [node for node in {slot.node, *slot.others} if node in nodes]


def _pause(state: SweepState, at: float, surplus: Container[str], out: Out) -> None:
    """Ask as many trials as have slots beyond the share for a checkpoint.

    Those on nodes that are cleared come first, then the newest ones.
    """
    heads = {slot.queue[0]: bool(_cleared(slot, surplus)) for slot in state.slots.values() if slot.queue}
    trials = [state.trials[number] for number in heads]
    ending = sum(trial.state == "stopping" for trial in trials)
    can_pause = [trial for trial in trials if trial.state == "running" and trial.checkpoint is not None]
    can_pause.sort(key=lambda trial: (heads[trial.number], trial.number), reverse=True)
    for trial in can_pause[: max(0, transitions.excess(state) - ending)]:
        transitions.preempt(state, trial, at, None, out)


def wanted_slots(state: SweepState, capacity: int) -> int:
    """The slots that the sweep could use now, if it had the cluster, which holds `capacity`, for itself."""
    if state.phase != "running" or state.end.is_interrupted:
        return 0
    most, wanted = state.rules.slots.max_concurrent, sweep_end.wanted_trials(state)
    limit = capacity if most is None else min(most, capacity)
    if state.search.is_exhausted:
        waiting = len(state.line.waiting) + large_trials.count_in_reach(state)
        limit = min(limit, state.tally.busy_slots + waiting)
    elif wanted is not None:
        paused, beyond = state.line.counts.get("paused", 0), len(large_trials.out_of_reach(state))
        limit = min(limit, wanted - state.search.suggested + len(state.line.active) - paused - beyond)
    return max(0, limit)


def needed_slots(state: SweepState, at: float) -> int:
    """The slots that are needed from now on to run every trial by the deadline.

    0: there is no deadline, or the number of trials is not known. While it is not known how long a trial
    takes, it is one at least: the first trial shows it.
    """
    clock, search = state.clock, state.search
    if clock.deadline_at is None or state.phase != "running":
        return 0
    wanted = search.suggested if search.is_exhausted else sweep_end.wanted_trials(state)
    left_s = clock.deadline_at - clock.ahead_s - at
    if wanted is None or left_s <= 0:
        return 0
    trials = max(0, wanted - search.suggested) + len(state.line.active)
    trial_s = state.meter.mean_duration_s
    if trial_s is not None:
        return ceil(_CAUTION * trials * trial_s / left_s)
    since = state.tally.running_since()
    so_far_s = max(0.0, at - since[0]) if since is not None else 0.0
    return max(1, ceil(_CAUTION * trials * so_far_s / left_s))
