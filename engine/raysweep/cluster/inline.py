"""The one worker of `isolation="inline"`: its place in the cluster is Ray's, its process is this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from raysweep.cluster.actors import Actor, ActorPool
from raysweep.cluster.setup import resized
from raysweep.core.fleet import StartWorker
from raysweep.spec import Resources
from raysweep.worker.inline import INLINE_PREFIX, InlineStage
from raysweep.worker.setup import WorkerSetup


class InlinePool(ActorPool):
    """As `ActorPool`, with workers on the stage instead of in actors."""

    def __init__(
        self,
        resources: Resources,
        setup: WorkerSetup,
        on_ended: Callable[[int, BaseException | None], None],
        stage: InlineStage,
    ) -> None:
        super().__init__(resources, setup, on_ended)
        self._stage = stage

    def start(self, action: StartWorker) -> None:
        """Have the stage begin with a worker."""
        loop = asyncio.get_running_loop()
        actor = Actor(worker=action.worker, name=f"{INLINE_PREFIX}{action.worker}", handle=None)
        self._alive[actor.worker] = actor
        self._numbers[actor.name] = actor.worker

        def ended() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(partial(self._take_end, actor, None))

        _, resources = self._groups[action.group]
        self._stage.start(actor.name, resized(self._setup, resources), ended)

    def kill(self, worker: int) -> None:
        """Hang up on it: no process ends."""
        actor = self._alive.pop(worker, None)
        if actor is not None:
            self._stage.drop(actor.name)
