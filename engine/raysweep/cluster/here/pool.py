"""A `Pool` on this machine: resources are counted here, and workers are forked by a starter."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from raysweep.cluster.here.link import StarterLink
from raysweep.cluster.here.machine import Given, Machine
from raysweep.cluster.here.orders import Ended, Kill, Learn, Start
from raysweep.cluster.placement import LEFT, OnEnded, Pool, Started
from raysweep.cluster.preparation import shaped
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.space.amounts import USUAL, Needs
from raysweep.specs.trial.shape import Shape
from raysweep.worker.machine import explain_death
from raysweep.worker.setup import WorkerSetup

DEVICES = "CUDA_VISIBLE_DEVICES"


class WorkerEnded(Exception):
    """The end of a worker's process."""

    def __init__(self, ended: Ended) -> None:
        died = explain_death(ended.exit_code, ended.is_kernel_oom).message
        super().__init__(ended.problem or died)
        self.ended = ended


class HerePool(Pool):
    """Groups get their places first come first served; each start is one fork."""

    def __init__(
        self,
        shape_for: Callable[[Needs], Shape],
        setup: WorkerSetup,
        on_ended: OnEnded,
        machine: Machine,
        link: StarterLink,
    ) -> None:
        super().__init__(shape_for, setup, on_ended)
        self._machine, self._link = machine, link
        self._loop = asyncio.get_running_loop()
        self._unplaced: deque[int] = deque()
        self._given: dict[int, Given] = {}
        self._waiting: dict[int, list[StartWorker]] = {}
        self._keys: set[str] = set()
        machine.join(self._look_soon)
        link.on_ended = self._ended

    def create_group(self, action: CreateGroup) -> None:
        """See `Pool`. On an excluded machine it never has a place."""
        self._note_shape(action)
        self._waiting[action.group] = []
        if self._machine.name not in action.excluded:
            self._unplaced.append(action.group)
            self._place()

    def remove_group(self, action: RemoveGroup) -> None:
        """See `Pool`."""
        del self._shapes[action.group], self._needs[action.group]
        self._waiting.pop(action.group, None)
        given = self._given.pop(action.group, None)
        if given is not None:
            self._machine.give_back(given)

    def start(self, action: StartWorker) -> None:
        """See `Pool`."""
        self._note_started(Started(worker=action.worker, name=os.urandom(16).hex()))
        if action.group in self._given:
            self._fork(action)
        else:
            self._waiting[action.group].append(action)

    def kill(self, worker: int) -> None:
        """See `Pool`."""
        if self._alive.pop(worker, None) is not None:
            self._link.send(Kill(worker))

    def explain_end(self, error: BaseException | None, node: str) -> Failure:
        """See `Pool`."""
        if not isinstance(error, WorkerEnded) or error.ended.exit_code == 0:
            return LEFT
        ended = error.ended
        facts = explain_death(ended.exit_code, ended.is_kernel_oom)
        message = f"{facts.message}: {ended.problem}" if ended.problem else facts.message
        kind = "WorkerDied" if facts.origin == "process" else facts.type
        return Failure(
            origin=facts.origin, type=kind, message=message, exit_code=ended.exit_code, node_state="alive"
        )

    async def leave(self) -> None:
        """See `Pool`: the starter ends, and with it whatever is left."""
        self._machine.part(self._look_soon)
        for given in self._given.values():
            self._machine.give_back(given)
        self._given.clear()
        self._link.close()

    def _look_soon(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: the sweep has ended
            self._loop.call_soon_threadsafe(self._place)

    def _place(self) -> None:
        while self._unplaced:
            group = self._unplaced[0]
            if group in self._shapes:
                given = self._machine.take(self._shapes[group].bundles)
                if given is None:
                    return
                self._given[group] = given
            self._unplaced.popleft()
            for action in self._waiting.pop(group, ()):
                if action.worker in self._alive:
                    self._fork(action)

    def _fork(self, action: StartWorker) -> None:
        gpus = self._given[action.group].gpus[action.rank]
        environment = {DEVICES: ",".join(gpus)} if gpus else {}
        name = self._alive[action.worker].name
        key = self._key_of(action.group)
        self._link.send(Start(action.worker, name, self._machine.name, key, environment))

    def _key_of(self, group: int) -> str:
        """The starter's key of the setup of this group's workers."""
        size = self._needs[group].size
        if size not in self._keys:
            self._keys.add(size)
            is_usual = size == USUAL.size
            setup = self._setup if is_usual else shaped(self._setup, self._shapes[group], is_sized=True)
            self._link.send(Learn(size, setup))
        return size

    def _ended(self, ended: Ended) -> None:
        started = self._alive.get(ended.number)
        if started is not None:
            self._take_end(started, WorkerEnded(ended))
