"""From the request to end to the kill: what is done about a trial that does not end.

| when | what |
|---|---|
| at once | it is asked to end at its next report |
| after the grace that the core gives | its main thread is interrupted; a spare worker starts |
| `INTERRUPT_GRACE_S` later | its process is killed: with it goes the worker, unless it was forked |
| `KILL_GRACE_S` later | a worker that does not carry that kill out is killed itself |

Each step first looks whether that attempt still runs there: one that has ended leaves nothing behind.
"""

from __future__ import annotations

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary.stop_reasons import STOPS
from raysweep.fleet.policy import INTERRUPT_GRACE_S, KILL_GRACE_S
from raysweep.fleet.roster import Roster
from raysweep.fleet.state import FleetSlot, Handed
from raysweep.messages import Interrupt, Kill, Stop


def ask(fleet: Roster, slot: FleetSlot, handed: Handed, command: cmd.StopTrial, at: float) -> None:
    """The first step. A later request replaces an earlier one, but never makes it weaker."""
    reason, wants_checkpoint = command.reason, command.wants_checkpoint
    fleet.say(slot, Stop(*handed.job.who, reason, wants_checkpoint, STOPS[reason].allows))
    handed.stops += 1
    if not handed.is_interrupted:
        stops = handed.stops
        fleet.alarms.set(
            at + command.grace_s,
            lambda at: interrupt(fleet, slot, handed, at) if handed.stops == stops else None,
        )


def interrupt_all(fleet: Roster) -> None:
    """Interrupt what was told to stop, whatever its grace."""
    for slot in fleet.slots.values():
        begun = slot.begun
        if begun is not None:
            begun.is_interrupted = True
            fleet.say(slot, Interrupt(*begun.job.who))
    fleet.flush()


def interrupt(fleet: Roster, slot: FleetSlot, handed: Handed, at: float) -> None:
    """The second step, and in time the others."""
    if not _runs(fleet, slot, handed):
        return
    handed.is_interrupted = True
    fleet.say(slot, Interrupt(*handed.job.who))
    fleet.flush()
    if fleet.policy.can_spare:
        fleet.crew.start_spare(slot)
    fleet.alarms.set(at + INTERRUPT_GRACE_S, lambda at: _kill(fleet, slot, handed, at))


def _kill(fleet: Roster, slot: FleetSlot, handed: Handed, at: float) -> None:
    if fleet.policy.isolation != "process":
        _kill_worker(fleet, slot, handed, at)
    elif _runs(fleet, slot, handed):
        fleet.say(slot, Kill(*handed.job.who))
        fleet.flush()
        fleet.alarms.set(at + KILL_GRACE_S, lambda at: _kill_worker(fleet, slot, handed, at))


def _kill_worker(fleet: Roster, slot: FleetSlot, handed: Handed, at: float) -> None:
    if _runs(fleet, slot, handed):
        slot.forced = handed
        fleet.retire(slot, at)


def _runs(fleet: Roster, slot: FleetSlot, handed: Handed) -> bool:
    """True if that attempt still runs there."""
    is_there = fleet.slots.get(slot.number) is slot and slot.handed.get(handed.trial) is handed
    return is_there and handed.state == "begun"
