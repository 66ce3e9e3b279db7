"""The slots, workers and placement groups of one controller, and the steps that all of the fleet uses.

`machine` handles the inputs. The other modules (`gang`, `losses`, `end_of_trial`, `handing_over`,
`replacement`, `worker_messages`) change a roster for it and know no more than that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from raysweep import messages as msg
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet.actions import Action
from raysweep.fleet.alarms import Alarms
from raysweep.fleet.evaluations import Evaluations
from raysweep.fleet.groups import Groups
from raysweep.fleet.message_events import failure_of
from raysweep.fleet.policy import FleetPolicy
from raysweep.fleet.state import FleetSlot
from raysweep.fleet.workers import Crew

Shorten = Callable[[int, int, Failure], Failure]
"""Of a trial, an attempt and its failure: the failure, short enough to be stored."""


class Roster(ABC):
    """All slots of one controller.

    Args:
        policy: how slots, workers and groups are to be treated.
        shorten: makes a trial's failure short enough to be stored.
    """

    def __init__(self, policy: FleetPolicy, shorten: Shorten) -> None:
        self.events: deque[ev.Event] = deque()
        """Events for the core, in order; the driver of the fleet takes them after each input."""
        self.actions: deque[Action] = deque()
        """Actions for Ray and the links, in order; taken after each input."""
        self.evaluations = (
            Evaluations(policy.evaluations, self.actions.append, self._tell)
            if policy.evaluations is not None
            else None
        )
        """Holds events back until checkpoints are evaluated; None: none is."""
        self.policy = policy
        self.alarms = Alarms()
        self.groups = Groups(self.actions.append)
        self.crew = Crew(self.actions.append)
        self.slots: dict[int, FleetSlot] = {}
        self.shorten = shorten
        self.dirty: dict[int, FleetSlot] = {}
        """Slots with messages that the next flush sends, by number."""
        self.large_opening: set[int] = set()
        """Slots larger than the usual ones that wait for room."""

        self.leftovers: set[str] = set()
        """The leftovers of trials in their workers, as noted: each once."""

    @property
    def has_large_opening(self) -> bool:
        """True if a larger slot than the usual waits for room."""
        return bool(self.large_opening)

    @abstractmethod
    def flush(self) -> None:
        """Send the messages since the last flush, one frame a worker."""

    @abstractmethod
    def retire(self, slot: FleetSlot, at: float) -> None:
        """Kill the members, hear the last words of rank 0, then replace them."""

    def say(self, slot: FleetSlot, message: msg.ToWorker) -> None:
        """Have a message go to the slot's members with the next flush."""
        slot.outgoing.append(message)
        self.dirty[slot.number] = slot

    def _tell(self, number: int, message: msg.ToWorker) -> None:
        slot = self.slots.get(number)
        if slot is not None:
            self.say(slot, message)

    def fail(self, slot: FleetSlot, message: msg.TrialFailed, at: float) -> None:
        """The attempt has failed."""
        trial, attempt = message.who
        failure = self.shorten(trial, attempt, failure_of(message.failure))
        if failure.memory_bytes is None:
            failure = replace(failure, memory_bytes=slot.held_bytes)
        self.drop(slot, trial)
        self.events.append(ev.TrialFailed(at=at, trial=trial, attempt=attempt, failure=failure))

    def drop(self, slot: FleetSlot, trial: int) -> None:
        """The trial has ended in this slot."""
        slot.handed.pop(trial, None)
        slot.held_bytes = None

    def forget(self, slot: FleetSlot) -> None:
        """The slot is no more, nor are its members and its spare."""
        del self.slots[slot.number]
        self.dirty.pop(slot.number, None)
        self.large_opening.discard(slot.number)
        if slot.spare is not None:
            self.crew.drop_spare(slot.spare)
        for member in slot.members:
            self.crew.forget(member)
