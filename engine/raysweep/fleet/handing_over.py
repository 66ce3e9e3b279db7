"""Handing trials to the workers of a slot, and taking them back."""

from __future__ import annotations

from collections.abc import Collection

from raysweep.core.vocabulary import events as ev
from raysweep.fleet.roster import Roster
from raysweep.fleet.state import FleetSlot, Handed


def pump(fleet: Roster, slot: FleetSlot) -> None:
    """Hand over what the slot's workers can take now: everything that waits, or one trial."""
    worker = slot.worker
    if not slot.is_ready:
        return
    is_for_one, is_gang = fleet.policy.isolation == "actor", fleet.policy.world_size
    for handed in slot.handed.values():
        if (is_for_one and worker.has_run) or (is_gang and handed.state != "unsent"):
            return
        if handed.state == "unsent":
            hand_over(fleet, slot, handed)
            if is_gang:
                return


def hand_over(fleet: Roster, slot: FleetSlot, handed: Handed) -> None:
    """Send one trial to the slot's workers with the next flush."""
    handed.move("sent")
    slot.worker.has_run = True
    fleet.say(slot, handed.job)


def recalled(fleet: Roster, slot: FleetSlot, trials: Collection[int], at: float) -> None:
    """Tell the core which trials came back, with those that were never sent."""
    taken, slot.recalled = (*slot.recalled, *trials), []
    fleet.events.append(ev.TrialsRecalled(at=at, slot=slot.number, trials=tuple(sorted(taken))))


def began(fleet: Roster, slot: FleetSlot, trial: int, attempt: int) -> None:
    """User code of this attempt runs."""
    handed = slot.find(trial, attempt)
    if handed is not None and handed.state == "sent":
        handed.move("began")
    slot.worker.trials += 1
    most = 1 if fleet.policy.isolation == "actor" else fleet.policy.max_trials
    if most is not None and slot.worker.trials >= most and fleet.policy.can_spare:
        fleet.crew.start_spare(slot)  # this trial is the worker's last


def is_used_up(slot: FleetSlot) -> bool:
    """True if the trial that its members ran has ended in all of them: with `isolation="actor"` they get
    no other."""
    return slot.worker.has_run and all(handed.state == "unsent" for handed in slot.handed.values())
