"""Replacing the worker of an open slot: what the old one had begun ends, what it had not goes to the next."""

from __future__ import annotations

from typing import Final

from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet import gang, handing_over, losses
from raysweep.fleet.policy import LAST_WORDS_S, REPLACE_S
from raysweep.fleet.roster import Roster
from raysweep.fleet.state import FleetSlot, Handed, Worker

_REPLACED: Final = Failure(
    origin="node", type="WorkerReplaced", message="its worker was ended for the trial before it"
)


def retire(fleet: Roster, slot: FleetSlot, at: float) -> None:
    """Kill the members, hear the last words of rank 0, then continue with others."""
    worker = slot.worker
    if not slot.is_ready:
        return  # one is on its way out
    for member in slot.members:
        member.move("retired")
        fleet.crew.kill(member)
    if worker.has_link:
        fleet.alarms.set(at + LAST_WORDS_S, lambda at: replace(fleet, worker, at))
    else:
        replace(fleet, worker, at)


def replace(fleet: Roster, old: Worker, at: float) -> None:
    """Continue with another worker under the same slot, the last words of the old one being said."""
    slot = fleet.crew.slot_of(old.number)
    if slot is None:
        return
    is_heard = not old.has_link or old.state != "retiring"
    worker = fleet.crew.relieve(slot)
    _account_for_begun(fleet, slot, at)
    slot.outgoing, slot.held_bytes = [], None
    # The old worker cannot answer any more.
    has_asked, asked = bool(slot.asked_back), [number for trials in slot.asked_back for number in trials]
    slot.asked_back.clear()
    back = [number for number in asked if slot.handed.pop(number, None) is not None]
    for handed in [handed for handed in slot.handed.values() if handed.state == "sent"]:
        if is_heard:
            handed.move("replaced")  # none of these had begun there
        else:
            _give_up_attempt(fleet, slot, handed, at)
    if has_asked:
        handing_over.recalled(fleet, slot, back, at)
    handing_over.pump(fleet, slot)
    limit_s = fleet.policy.placement_timeout_s + REPLACE_S
    fleet.alarms.set(at + limit_s, lambda at: losses.give_up_place(fleet, worker, at))


def _account_for_begun(fleet: Roster, slot: FleetSlot, at: float) -> None:
    """The trial that ran in a worker that was killed: it was killed for it, or for one before it."""
    begun, forced, slot.forced = slot.begun, slot.forced, None
    if begun is None:
        return
    if begun is not forced:
        _give_up_attempt(fleet, slot, begun, at)
        return
    if gang.settle(fleet, slot, at, counts_echoes=True):
        return
    del slot.handed[begun.trial]
    who = begun.job.who
    fleet.events.append(ev.TrialStopped(at=at, trial=who[0], attempt=who[1], was_killed=True))


def _give_up_attempt(fleet: Roster, slot: FleetSlot, handed: Handed, at: float) -> None:
    """It was, or may have been, under way in a worker that was killed for another: nothing is charged.

    It runs again as another attempt: whatever this one did stays apart from what that will do.
    """
    del slot.handed[handed.trial]
    who = handed.job.who
    fleet.events.append(ev.TrialFailed(at=at, trial=who[0], attempt=who[1], failure=_REPLACED))
