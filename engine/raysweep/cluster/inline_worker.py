"""The single worker of `isolation="inline"`: runs in this process, without resources of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from raysweep.cluster.preparation import shaped
from raysweep.cluster.ray.actors import Actor, ActorPool
from raysweep.fleet import CreateGroup, StartWorker
from raysweep.space.amounts import Needs
from raysweep.specs.trial.shape import Shape
from raysweep.worker.inline import INLINE_PREFIX, InlineStage
from raysweep.worker.setup import WorkerSetup


class InlinePool(ActorPool):
    """As `ActorPool`, with workers on the stage instead of in actors, and without placement groups.

    This process would not run in its group, which might be on another node, wait for ever for one that is
    large enough, and keep what it holds from tasks that the trial starts.
    """

    def __init__(
        self,
        shape_for: Callable[[Needs], Shape],
        setup: WorkerSetup,
        on_ended: Callable[[int, BaseException | None], None],
        stage: InlineStage,
    ) -> None:
        super().__init__(shape_for, setup, on_ended)
        self._stage = stage

    def create_group(self, action: CreateGroup) -> None:
        """Note what a worker is told that it has."""
        self._note_shape(action)

    def start(self, action: StartWorker) -> None:
        """Have the stage begin with a worker."""
        loop = asyncio.get_running_loop()
        actor = Actor(worker=action.worker, name=f"{INLINE_PREFIX}{action.worker}", handle=None)
        self._alive[actor.worker] = actor
        self._numbers[actor.name] = actor.worker

        def ended() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(partial(self._take_end, actor, None))

        self._stage.start(actor.name, shaped(self._setup, self._shapes[action.group]), ended)

    def kill(self, worker: int) -> None:
        """Hang up on it: no process ends."""
        actor = self._alive.pop(worker, None)
        if actor is not None:
            self._stage.drop(actor.name)
