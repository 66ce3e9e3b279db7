"""Workers that are gone, or count as gone, and what that means for their slot and its placement group."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet import gang
from raysweep.fleet.policy import LINGER_S, SILENCE_S
from raysweep.fleet.roster import Roster
from raysweep.fleet.state import FleetSlot, Group, Worker

_LEAVES: Final = frozenset({"draining", "dead"})
_NO_PLACE: Final = Failure(
    origin="process",
    type="NoPlace",
    message="a worker's placement group lost its place, and has got no other",
    node_state="dead",
)
_LET_GO: Final = Failure(origin="process", type="LetGo", message="the sweep had to end at once")


def bury(fleet: Roster, worker: Worker, at: float) -> None:
    """A worker is gone, and has said its last words."""
    if not fleet.crew.has(worker) or worker.failure is None:
        return
    slot = fleet.crew.slot_of(worker.number)
    if slot is not None:
        for member in slot.members:
            if member is not worker:
                fleet.crew.kill(member)
        gang.settle(fleet, slot, at, counts_echoes=False)
        lose(fleet, slot, worker.failure, at, worker)
    elif fleet.crew.is_spare(worker):
        fleet.crew.drop_spare(worker)


def lose(fleet: Roster, slot: FleetSlot, failure: Failure, at: float, worker: Worker | None = None) -> None:
    """The slot is gone with its `worker`, one of its members; whom that is held against, the core decides."""
    worker = worker or slot.worker
    was_handed = any(handed.state != "unsent" for handed in slot.handed.values())
    was_handed = was_handed and not any(member.is_ending for member in slot.members)
    was_loaded = all(member.is_loaded for member in slot.members)
    failure = replace(failure, memory_bytes=slot.held_bytes) if slot.is_open else failure
    fleet.forget(slot)
    if failure.node_state in _LEAVES or fleet.has_large_opening:
        fleet.groups.drop(worker.group)
    else:
        _give_back(fleet, slot, at)
    if slot.is_open and was_loaded:
        fleet.events.append(ev.SlotLost(at=at, slot=slot.number, failure=failure, was_handed=was_handed))
    else:
        node = worker.node or slot.node
        fleet.events.append(ev.SlotFailed(at=at, slot=slot.number, failure=failure, node=node))


def kill_and_lose(
    fleet: Roster, slot: FleetSlot, failure: Failure, at: float, worker: Worker | None = None
) -> None:
    """As `lose`, of a worker that still lives."""
    for member in slot.members:
        fleet.crew.kill(member)
    lose(fleet, slot, failure, at, worker)


def let_go(fleet: Roster, at: float) -> None:
    """End every worker now; `SlotLost` or `SlotFailed` follows for each slot, and its trials with it."""
    for slot in list(fleet.slots.values()):
        kill_and_lose(fleet, slot, _LET_GO, at)


def give_up_start(fleet: Roster, worker: Worker, at: float) -> None:
    """The time to load the trainable is over."""
    if fleet.crew.has(worker) and worker.state == "loading":
        limit = f"{fleet.policy.start_timeout_s:g} s (failure.start_timeout_s)"
        message = f"the trainable was still being loaded after {limit}"
        _give_up(fleet, worker, Failure(origin="start", type="StartTimeout", message=message), at)


def give_up_silence(fleet: Roster, worker: Worker, at: float) -> None:
    """Its link has been closed for long, and Ray says nothing."""
    if fleet.crew.has(worker) and not worker.has_link and worker.state != "dying":
        message = f"the worker's link was down for {SILENCE_S:g} s"
        _give_up(fleet, worker, Failure(origin="process", type="LinkLost", message=message), at)


def give_up_place(fleet: Roster, worker: Worker, at: float) -> None:
    """A replacement has no place any more: what its slot was handed must not wait for it."""
    slot = fleet.crew.slot_of(worker.number)
    if slot is not None and any(member.state == "starting" for member in slot.members):
        kill_and_lose(fleet, slot, _NO_PLACE, at)


def moved(node: str) -> Failure:
    """The failure of a worker that came up on another node than its slot is on."""
    message = f"its placement group was placed anew, on node {node}"
    return Failure(origin="process", type="GroupMoved", message=message, node_state="dead")


def _give_up(fleet: Roster, worker: Worker, failure: Failure, at: float) -> None:
    worker.failure = failure
    fleet.crew.kill(worker)
    bury(fleet, worker, at)


def _give_back(fleet: Roster, slot: FleetSlot, at: float) -> None:
    group = slot.worker.group
    if fleet.groups.give_back(group, {member.node for member in slot.members}):
        returns = group.returns
        fleet.alarms.set(at + LINGER_S, lambda at: _end_lingering(fleet, group, returns))


def _end_lingering(fleet: Roster, group: Group, returns: int) -> None:
    if group.state == "free" and group.returns == returns:
        fleet.groups.drop(group)
