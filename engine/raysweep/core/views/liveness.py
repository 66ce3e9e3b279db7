"""Liveness of a sweep: if work is pending and there is room, something must be under way or due.

A sweep that stands still raises nothing and logs nothing. So code that runs the core without a cluster (the
tests' world, the simulator) asks here each time that the shell has nothing left to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from raysweep.core.handlers import large_trials, sequential, sweep_end, transitions
from raysweep.core.state.sweep import SweepState


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """The answers that the shell owes the core: each comes as an event sooner or later.

    `opening`: slots that have a place, or can get one. `attempts`: trials handed over that are about to
    begin, run by themselves, or were told to end. `timer_at`: what the timer is set to.
    """

    opening: int = 0
    asks: int = 0
    recalls: int = 0
    attempts: int = 0
    timer_at: float | None = None

    @property
    def is_nothing(self) -> bool:
        """True if nothing but the clock can bring another event."""
        return not (self.opening or self.asks or self.recalls or self.attempts)


def explain_stuck(state: SweepState, under_way: UnderWay) -> str:
    """The reason why nothing can move, although there is work and room for it; empty: all is well."""
    line = state.line
    if state.phase in ("ending", "ended") or state.end.has_left or not under_way.is_nothing:
        return ""
    held = [number for slot in state.slots.values() for number in slot.queue]
    if held:
        return f"trials {held} are with workers that do nothing ({_where(state)})"
    if state.phase == "stopping" or state.end.is_interrupted:
        return f"no trial runs any more, and the sweep neither ends nor leaves ({_where(state)})"
    if line.waiting and (under_way.timer_at is None or under_way.timer_at > min(line.waiting.values())):
        return f"trials {sorted(line.waiting)} wait for a moment that no timer is set to"
    if state.room.share == 0:
        return ""  # other sweeps have all of the cluster for now
    if not state.room.capacity:
        return _explain_no_room(state, under_way)
    return _explain_idle(state, under_way)


def _explain_no_room(state: SweepState, under_way: UnderWay) -> str:
    is_known = state.room.no_room_since is not None
    if is_known and under_way.timer_at is None:
        return "there is no room for a trial, and no timer ends the wait for it"
    return ""


def _explain_idle(state: SweepState, under_way: UnderWay) -> str:
    """Nothing runs, and there is room: what could begin?"""
    line = state.line
    beyond = len(large_trials.out_of_reach(state))
    in_reach = len(line.pending) - beyond
    if state.rules.ends.has_end and not sweep_end.admits(state, state.clock.last_at):
        return f"nothing that begins now can report in time, and the sweep does not end ({_where(state)})"
    if in_reach and not sequential.holds(state):
        return f"{in_reach} trials are pending, and no slot runs or opens ({_where(state)})"
    if line.waiting:
        return ""
    if not state.search.is_exhausted:
        return f"the searcher has more trials, and is not asked ({_where(state)})"
    if beyond and under_way.timer_at is None:
        return f"{beyond} trials wait for memory that no node has, and no timer ends that ({_where(state)})"
    if (paused := line.counts.get("paused", 0)) and not in_reach:
        return f"{paused} trials are paused, and the scheduler is not asked about them ({_where(state)})"
    if not line.active:
        return f"every trial has ended, and the sweep continues ({_where(state)})"
    return ""


def _where(state: SweepState) -> str:
    line = state.line
    slots = [
        f"{slot.number}{'' if slot.is_open else ' not open'}{' leaving' if slot.is_leaving else ''}"
        for slot in state.slots.values()
    ]
    return (
        f"phase {state.phase}, slots [{', '.join(slots)}] of {transitions.slot_limit(state)}, "
        f"{len(line.pending)} pending, {len(line.waiting)} waiting, {len(line.active)} active, "
        f"{state.room.slot_failures} slots failed in a row"
    )
