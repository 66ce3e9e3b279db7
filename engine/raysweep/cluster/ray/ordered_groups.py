"""Placement groups of a sweep on a shared cluster: requested from Ray when the sweep's turn comes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

from raysweep.cluster.ray.actors import ActorPool
from raysweep.cluster.ray.demand import look_for_room
from raysweep.cluster.ray.waiting_order import LOOK_S, Places, Tickets, total
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.raycompat.cluster import ClusterNotes
from raysweep.space.amounts import Needs
from raysweep.specs.trial.shape import Shape
from raysweep.threads import on_thread
from raysweep.worker.setup import WorkerSetup

FIRST_LOOK_S = 0.02
LEAVE_S = 2.0
log = logging.getLogger("raysweep")


class OrderedPool(ActorPool):
    """As `ActorPool`; what has no turn yet waits here, its workers with it.

    `on_started(worker)` is called when such a worker is started.
    """

    def __init__(
        self,
        shape_for: Callable[[Needs], Shape],
        setup: WorkerSetup,
        on_ended: Callable[[int, BaseException | None], None],
        on_started: Callable[[int], None],
    ) -> None:
        super().__init__(shape_for, setup, on_ended)
        self._on_started = on_started
        owner = f"{setup.place.sweep_id}.{os.urandom(4).hex()}".replace("/", "_")
        self._places = Places(Tickets(ClusterNotes(), owner), look_for_room)
        self._wanted: dict[int, tuple[CreateGroup, list[StartWorker]]] = {}
        self._placing: asyncio.Task[None] | None = None

    def create_group(self, action: CreateGroup) -> None:
        """Ask for a placement group as soon as it is this sweep's turn."""
        self._note_shape(action)
        self._wanted[action.group] = action, []
        if self._placing is None or self._placing.done():
            self._placing = asyncio.get_running_loop().create_task(self._place())

    def remove_group(self, action: RemoveGroup) -> None:
        """Give the group's resources back, or want it no more."""
        self._wanted.pop(action.group, None)
        super().remove_group(action)

    def start(self, action: StartWorker) -> None:
        """Start an actor in its group once that is asked for."""
        if action.group in self._wanted:
            self._wanted[action.group][1].append(action)
        else:
            super().start(action)

    def kill(self, worker: int) -> None:
        """End the actor now, or do not start it."""
        for _, starts in self._wanted.values():
            starts[:] = [start for start in starts if start.worker != worker]
        super().kill(worker)

    async def leave(self) -> None:
        """Wait for no place any more."""
        if self._placing is None:
            return
        self._placing.cancel()
        try:
            await on_thread(self._places.leave, within_s=LEAVE_S)
        except Exception as error:  # noqa: BLE001  whatever Ray raises while its control store is away
            log.warning("this sweep's ticket for a place is left on the cluster for some seconds: %s", error)

    async def _place(self) -> None:
        pause_s = FIRST_LOOK_S
        while True:
            try:
                chosen, looks_again = await self._decide()
            except Exception as error:  # noqa: BLE001  the same: then Ray alone decides
                log.warning("places are not given in order: %s", error)
                chosen, looks_again = list(self._wanted), False
            for number in chosen:
                self._ask_for(number)
            if not looks_again and not self._wanted:
                return
            pause_s = FIRST_LOOK_S if chosen else min(LOOK_S, 2 * pause_s)
            await asyncio.sleep(pause_s)

    async def _decide(self) -> tuple[list[int], bool]:
        wanted = [(number, total(self.bundles_of(number))) for number in self._wanted]
        asked_for = {group.id.hex(): total(self.bundles_of(number)) for number, group in self._groups.items()}
        return await on_thread(lambda: self._places.decide(wanted, asked_for, time.time()))

    def _ask_for(self, number: int) -> None:
        wanted = self._wanted.pop(number, None)
        if wanted is None:
            return  # it was removed meanwhile
        action, starts = wanted
        super().create_group(action)
        for start in starts:
            super().start(start)
            self._on_started(start.worker)
