"""The workers of a fleet: which there are, which slot each serves, and the spares that wait to take over."""

from __future__ import annotations

from collections.abc import Callable

from raysweep.fleet.actions import Action, HangUp, KillWorker, StartWorker
from raysweep.fleet.state import FleetSlot, Group, Worker


class Crew:
    """Starts, kills and forgets workers; a worker serves one slot, or is the spare of one."""

    def __init__(self, act: Callable[[Action], None]) -> None:
        self._act = act
        self._all: dict[int, Worker] = {}
        self._serving: dict[int, FleetSlot] = {}
        self._spare_of: dict[int, FleetSlot] = {}
        self._next = 0

    @property
    def numbers(self) -> set[int]:
        """Those that are there, or on their way."""
        return set(self._all)

    def find(self, number: int) -> Worker | None:
        """The worker of this number, until it is forgotten."""
        return self._all.get(number)

    def has(self, worker: Worker) -> bool:
        """True if it is not forgotten yet."""
        return self._all.get(worker.number) is worker

    def slot_of(self, number: int) -> FleetSlot | None:
        """The slot that a worker serves; None for a spare."""
        return self._serving.get(number)

    def is_spare(self, worker: Worker) -> bool:
        """True if it waits to take a slot over."""
        return worker.number in self._spare_of

    def start(self, group: Group, *, rank: int = 0, is_spare: bool = False) -> Worker:
        """Start a worker in a group."""
        worker = Worker(number=self._next, group=group, rank=rank)
        self._next += 1
        self._all[worker.number] = worker
        number, group_number = worker.number, group.number
        self._act(StartWorker(worker=number, group=group_number, is_spare=is_spare, rank=rank))
        return worker

    def serve(self, slot: FleetSlot) -> None:
        """The slot's members serve it from here on."""
        self._serving.update({member.number: slot for member in slot.members})

    def start_spare(self, slot: FleetSlot) -> None:
        """Have the next worker warm by the time the present one goes."""
        if slot.spare is None:
            slot.spare = self.start(slot.worker.group, is_spare=True)
            self._spare_of[slot.spare.number] = slot

    def relieve(self, slot: FleetSlot) -> Worker:
        """Forget the slot's members, which have ended, and give the slot its spare, or new ones."""
        old, spare = slot.members, slot.spare
        for member in old:
            self.forget(member)
        slot.spare = None
        if spare is not None:
            del self._spare_of[spare.number]
        first = spare or self.start(old[0].group)
        slot.members = (first, *(self.start(member.group, rank=member.rank) for member in old[1:]))
        self.serve(slot)
        return slot.worker

    def kill(self, worker: Worker) -> None:
        """End its actor now; it is forgotten once it has said its last words."""
        self._act(KillWorker(worker=worker.number))

    def drop_spare(self, spare: Worker) -> None:
        """End a spare that is of no use."""
        self._spare_of.pop(spare.number).spare = None
        self.kill(spare)
        self.forget(spare)

    def forget(self, worker: Worker) -> None:
        """Nothing comes from it any more."""
        worker.move("ended")
        del self._all[worker.number]
        self._serving.pop(worker.number, None)
        self._act(HangUp(worker=worker.number))
