"""The single worker of `isolation="inline"`: runs in this process, without resources of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from raysweep.cluster.placement import LEFT, Pool, Started
from raysweep.cluster.preparation import shaped
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.space.amounts import Needs
from raysweep.specs.trial.shape import Shape
from raysweep.worker.inline import INLINE_PREFIX, InlineStage
from raysweep.worker.setup import WorkerSetup


class InlinePool(Pool):
    """A `Pool` whose workers are on the stage, and whose groups hold nothing.

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

    def remove_group(self, action: RemoveGroup) -> None:
        """Forget it."""
        del self._shapes[action.group], self._needs[action.group]

    def start(self, action: StartWorker) -> None:
        """Have the stage begin with a worker."""
        loop = asyncio.get_running_loop()
        actor = Started(worker=action.worker, name=f"{INLINE_PREFIX}{action.worker}")
        self._note_started(actor)

        def ended() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(partial(self._take_end, actor, None))

        self._stage.start(actor.name, shaped(self._setup, self._shapes[action.group]), ended)

    def kill(self, worker: int) -> None:
        """Hang up on it: no process ends."""
        actor = self._alive.pop(worker, None)
        if actor is not None:
            self._stage.drop(actor.name)

    def explain_end(self, error: BaseException | None, node: str) -> Failure:
        """See `Pool`."""
        return LEFT
