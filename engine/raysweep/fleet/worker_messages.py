"""Messages of workers that are more than an event: ready, spent, failed, out of memory, trials given back."""

from __future__ import annotations

from collections.abc import Sequence

from raysweep import messages as msg
from raysweep.core.vocabulary import events as ev
from raysweep.fleet import handing_over, losses
from raysweep.fleet.message_events import failure_of
from raysweep.fleet.roster import Roster
from raysweep.fleet.state import FleetSlot, Worker


def take(fleet: Roster, slot: FleetSlot, worker: Worker, message: msg.FromWorker, at: float) -> None:
    """A message of a member of a slot."""
    match message:
        case msg.TrialFailed():
            _take_failed(fleet, slot, message, at)
        case msg.Memory():
            slot.held_bytes = max(slot.held_bytes or 0, message.held_bytes)
        case msg.Upcoming() if fleet.evaluations is not None:
            if message.is_void:
                fleet.evaluations.expect_none(*message.who, message.report, at)
            else:
                fleet.evaluations.expect(*message.who, message.report, message.validation)
        case msg.Spent():
            worker.is_spent = True
            _note_spent(fleet, message, at)
        case msg.TrialsRecalled():
            _take_recalled(fleet, slot, message.trials, at)
        case msg.Ready():
            _take_ready(fleet, slot, worker, message, at)
        case msg.Unready():
            worker.node = message.node or worker.node
            failure = fleet.shorten(-1, -1, failure_of(message.failure))
            losses.kill_and_lose(fleet, slot, failure, at, worker)


def _take_failed(fleet: Roster, slot: FleetSlot, message: msg.TrialFailed, at: float) -> None:
    fleet.fail(slot, message, at)
    if message.failure.origin not in ("memory", "process") or fleet.policy.isolation == "process":
        return
    if message.failure.is_of_program:
        return
    # It ends with its trial, and begins none of those behind it.
    slot.worker.is_ending = True
    if message.failure.origin == "memory":
        fleet.retire(slot, at)


def _note_spent(fleet: Roster, spent: msg.Spent, at: float) -> None:
    """Once for each kind: it may be so with every trial. Without a leftover it was asked for."""
    if spent.leftover and spent.leftover not in fleet.leftovers:
        fleet.leftovers.add(spent.leftover)
        text = f"its worker was replaced, as after each trial that does so: it left {spent.leftover}"
        fleet.events.append(ev.TrialNoted(at=at, trial=spent.trial, attempt=spent.attempt, text=text))


def _take_ready(fleet: Roster, slot: FleetSlot, worker: Worker, ready: msg.Ready, at: float) -> None:
    if worker.state != "loading":
        return
    worker.load(ready.node)
    worker.host, worker.devices = ready.host, ready.devices
    node = slot.worker.node
    if not slot.is_ready:
        return
    if not slot.is_open:
        slot.is_open, slot.node = True, node
        fleet.large_opening.discard(slot.number)
        others = tuple(sorted({member.node for member in slot.members} - {node}))
        slot.others = others
        fleet.events.append(ev.SlotOpened(at=at, slot=slot.number, node=node, others=others))
    elif {member.node for member in slot.members} != {slot.node, *slot.others}:
        # Its group has been placed elsewhere meanwhile: the core must not take it for where it was.
        losses.kill_and_lose(fleet, slot, losses.moved(node), at)
        return
    handing_over.pump(fleet, slot)


def _take_recalled(fleet: Roster, slot: FleetSlot, trials: list[int], at: float) -> None:
    if not slot.asked_back:
        return
    slot.asked_back.popleft()
    for number in trials:
        slot.handed.pop(number, None)
    handing_over.recalled(fleet, slot, trials, at)


def take_from_spare(fleet: Roster, number: int, messages: Sequence[msg.FromWorker]) -> None:
    """Messages of a worker that serves no slot yet."""
    spare = fleet.crew.find(number)
    for message in messages if spare is not None else ():
        if isinstance(message, msg.Ready) and spare is not None and spare.state == "loading":
            spare.load(message.node)
        elif isinstance(message, msg.Unready) and spare is not None:
            fleet.crew.drop_spare(spare)
            spare = None
