"""A slot with several members: one trial in several processes, the ranks of a gang.

To the core the gang is one worker: rank 0 speaks for it. Rules:

1. One trial at a time. Each member gets the attempt's job, with its place in the gang.
2. Of the others only that they are ready, what they hold, a damaged checkpoint and their ends are heard,
   and their reports where metrics are reduced (see `reduction`).
3. A request to end goes to rank 0. It says in which report it will leave, and the others leave in that one.
4. An attempt is over when all members have ended it, and has one end. Once one has ended otherwise than by
   returning, the others are told to end at their next report; after `GANG_GRACE_S` they are interrupted,
   then killed, as any trial that does not end (see `end_of_trial`).
5. Its end is that of rank 0, unless a member failed. What raised because another had gone is an echo: it
   counts only where nothing else explains it.
6. A member that dies takes the slot along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from raysweep import messages as msg
from raysweep.fleet import end_of_trial
from raysweep.fleet.policy import GANG_GRACE_S, FleetPolicy
from raysweep.fleet.reduction import GangReports
from raysweep.fleet.roster import Roster
from raysweep.fleet.state import FleetSlot, Handed, Worker

REASON = "gang"
"""The reason given to a member that is told to end, and of which the core asked nothing."""
REPORTS_DIFFER = "GangReportsDiffer"
"""The failure of an attempt whose ranks did not report what was to be reduced."""


def heard(
    fleet: Roster, slot: FleetSlot, worker: Worker, messages: Sequence[msg.FromWorker], at: float
) -> Iterator[msg.FromWorker]:
    """The slot's messages, as one worker would send them, after this member's."""
    for message in messages:
        match message:
            case msg.TrialReturned() | msg.TrialStopped() | msg.TrialFailed():
                end = _take_end(fleet, slot, worker, message, at)
                if end is not None:
                    yield end
            case msg.TrialReported() | msg.Upcoming() | msg.CheckpointCommitted() if (
                fleet.policy.reduction is not None
            ):
                yield from _take_report(fleet, slot, worker, message, at)
            case msg.CheckpointDamaged():
                handed = slot.find(*message.who)
                if handed is not None and not handed.is_damaged:
                    handed.is_damaged = True
                    yield message
            case msg.Ready() | msg.Unready() | msg.Memory() | msg.TrialNoted() | msg.Spent():
                yield message
            case msg.Met() if message.is_each:
                _take_port(fleet, slot, worker, message)
            case _ if worker.rank == 0:
                _relay(fleet, slot, message)
                yield message


def addressed(
    policy: FleetPolicy, slot: FleetSlot, member: Worker, messages: Sequence[msg.ToWorker]
) -> list[msg.ToWorker]:
    """The form that a message to the slot has for one member."""
    said: list[msg.ToWorker] = []
    for message in messages:
        match message:
            case msg.Job():
                said.append(replace(message, rank=member.rank, gang=_place(policy, slot, member)))
            case msg.Meet() | msg.Follow():
                if member.rank or (isinstance(message, msg.Meet) and message.addresses):
                    said.append(message)
            case msg.Stop() if member.rank:
                handed = slot.find(*message.who)
                if handed is not None and 0 in handed.ends:  # there is no rank to follow any more
                    said.append(msg.Follow(*message.who, report=0, reason=message.reason))
            case msg.Answer() | msg.Recall() if member.rank:
                pass
            case _:
                said.append(message)
    return said


def settle(fleet: Roster, slot: FleetSlot, at: float, *, counts_echoes: bool) -> bool:
    """The members are killed: should one have failed before, that is the end of the attempt."""
    begun = slot.begun
    if begun is None or _was_told(begun):
        return False
    failed = begun.fault or _failure(begun, counts_echoes)
    if failed is not None:
        fleet.fail(slot, failed, at)
    return failed is not None


def _relay(fleet: Roster, slot: FleetSlot, message: msg.FromWorker) -> None:
    match message:
        case msg.Met(port=port):
            fleet.say(slot, msg.Meet(*message.who, port=port))
        case msg.Leaving(report=report, reason=reason):
            fleet.say(slot, msg.Follow(*message.who, report=report, reason=reason))
        case msg.TrialBusy(is_over=is_over):
            handed = slot.find(*message.who)
            if handed is not None:
                handed.is_busy = not is_over


def _take_end(fleet: Roster, slot: FleetSlot, worker: Worker, end: msg.End, at: float) -> msg.End | None:
    handed = slot.find(*end.who)
    if handed is None or worker.rank in handed.ends:
        return None
    handed.ends[worker.rank] = end = _named(end, worker.rank)
    if isinstance(end, msg.TrialReturned) and fleet.policy.reduction is not None:
        reports = _reports_of(fleet, slot, handed)
        reports.returned(worker.rank)
        _note_fault(handed, reports)
    if len(handed.ends) == len(slot.members):
        return _verdict(handed)
    if not isinstance(end, msg.TrialReturned) or handed.fault is not None:
        _disband(fleet, slot, handed, at)
    return None


def _disband(fleet: Roster, slot: FleetSlot, handed: Handed, at: float) -> None:
    """All are to end at their next report, and soon."""
    if handed.is_disbanding:
        return
    handed.is_disbanding = True
    fleet.say(slot, msg.Stop(*handed.job.who, reason=REASON))
    fleet.alarms.set(at + GANG_GRACE_S, lambda at: _hasten(fleet, slot, handed, at))


def _take_report(
    fleet: Roster,
    slot: FleetSlot,
    worker: Worker,
    message: msg.TrialReported | msg.Upcoming | msg.CheckpointCommitted,
    at: float,
) -> Iterator[msg.FromWorker]:
    handed = slot.find(*message.who)
    if handed is None:
        if not worker.rank and isinstance(message, msg.CheckpointCommitted):
            yield message  # whose it is, the core knows
        return
    reports = _reports_of(fleet, slot, handed)
    yield from reports.take(worker.rank, message)
    _note_fault(handed, reports)
    if handed.fault is not None:
        _disband(fleet, slot, handed, at)


def _reports_of(fleet: Roster, slot: FleetSlot, handed: Handed) -> GangReports:
    if handed.reports is None:
        assert fleet.policy.reduction is not None
        handed.reports = GangReports(fleet.policy.reduction, len(slot.members))
    return handed.reports


def _note_fault(handed: Handed, reports: GangReports) -> None:
    """Fail the attempt for a problem of its reports, unless it ends anyway or has failed before."""
    if not reports.problem or handed.fault is not None or handed.is_disbanding or _was_told(handed):
        return
    bases = (REPORTS_DIFFER, "RaysweepError", "Exception")
    facts = msg.FailureFacts(origin="exception", type=REPORTS_DIFFER, message=reports.problem, bases=bases)
    handed.fault = msg.TrialFailed(*handed.job.who, failure=facts)


def _take_port(fleet: Roster, slot: FleetSlot, worker: Worker, message: msg.Met) -> None:
    """Each has a port of its own; when all have one, all are told."""
    handed = slot.find(*message.who)
    if handed is None:
        return
    handed.ports[worker.rank] = message.port
    if len(handed.ports) == len(slot.members):
        addresses = tuple(f"{one.host}:{handed.ports[one.rank]}" for one in slot.members)
        fleet.say(slot, msg.Meet(*message.who, addresses=addresses))


def _hasten(fleet: Roster, slot: FleetSlot, handed: Handed, at: float) -> None:
    """The time to end is over, for those that have not."""
    if fleet.slots.get(slot.number) is not slot or slot.handed.get(handed.trial) is not handed:
        return
    is_storing = handed.is_busy and 0 not in handed.ends and len(handed.ends) == len(slot.members) - 1
    if is_storing or handed.state != "begun":
        # What rank 0 stores yet is what the next attempt resumes from.
        fleet.alarms.set(at + GANG_GRACE_S, lambda at: _hasten(fleet, slot, handed, at))
    else:
        end_of_trial.interrupt(fleet, slot, handed, at)


def _verdict(handed: Handed) -> msg.End:
    """The end of the attempt, all members having ended."""
    lead = handed.ends[0]
    if isinstance(lead, msg.TrialStopped) and _was_told(handed):
        return lead
    fault = None if _was_told(handed) else handed.fault
    return fault or _failure(handed, counts_echoes=True) or lead


def _was_told(handed: Handed) -> bool:
    """True if it was to end anyway: failures while the gang parts are not its own."""
    return bool(handed.stops) or handed.is_damaged


def _failure(handed: Handed, counts_echoes: bool) -> msg.TrialFailed | None:
    """The first failure, but for echoes."""
    failed = [end for end in handed.ends.values() if isinstance(end, msg.TrialFailed)]
    failed.sort(key=lambda end: end.is_echo)
    return failed[0] if failed and (counts_echoes or not failed[0].is_echo) else None


def _named(end: msg.End, rank: int) -> msg.End:
    if not rank or not isinstance(end, msg.TrialFailed):
        return end
    facts = end.failure
    return replace(end, failure=replace(facts, message=f"rank {rank}: {facts.message}"))


def _place(policy: FleetPolicy, slot: FleetSlot, member: Worker) -> msg.Gang:
    nodes = list(dict.fromkeys(one.node for one in slot.members))
    mates = [one for one in slot.members if one.node == member.node]
    devices = list(dict.fromkeys(device for one in mates for device in _devices(one)))
    own = _devices(member)
    return msg.Gang(
        world_size=len(slot.members),
        local_rank=mates.index(member),
        local_world_size=len(mates),
        node_rank=nodes.index(member.node),
        host=slot.worker.host,
        group=policy.group_of(slot.needs.size),
        devices=",".join(devices) or None,
        device=devices.index(own[0]) if own else 0,
        nodes=tuple(nodes.index(one.node) for one in slot.members),
    )


def _devices(worker: Worker) -> list[str]:
    return [device for device in (worker.devices or "").split(",") if device]
