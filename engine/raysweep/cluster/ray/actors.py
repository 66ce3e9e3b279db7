"""Starts, watches and kills worker actors and their placement groups, and reads the cause of a death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysweep.cluster.placement import LEFT, Pool, Started
from raysweep.cluster.preparation import shaped
from raysweep.cluster.ray.nodes import avoiding, state_of_node
from raysweep.cluster.ray.orphaned_groups import Orphans
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.space.amounts import USUAL, Needs
from raysweep.specs.trial.shape import Bundle, Shape
from raysweep.worker.actor import TrialWorker
from raysweep.worker.setup import WorkerSetup


class ActorPool(Pool):
    """A `Pool` on Ray: placement groups, and actors in them; `on_ended` gets what Ray raised."""

    def __init__(
        self,
        shape_for: Callable[[Needs], Shape],
        setup: WorkerSetup,
        on_ended: Callable[[int, BaseException | None], None],
    ) -> None:
        super().__init__(shape_for, setup, on_ended)
        self._orphans = Orphans()
        self._groups: dict[int, PlacementGroup] = {}
        # A call without arguments spares the worker Ray's deserialization, for which it would import pyarrow,
        # numpy, starlette and pydantic.v1: a third of its start. So its class brings the setup along.
        is_small = setup.pickled is None
        carrier = type("TrialWorker", (TrialWorker,), {"setup": setup if is_small else None})
        self._actor_class: Any = ray.remote(carrier)
        self._arguments: dict[str, tuple[Any, ...]] = {USUAL.size: () if is_small else (ray.put(setup),)}

    def create_group(self, action: CreateGroup) -> None:
        """Ask for a placement group; Ray places it when there is room."""
        shape = self._note_shape(action)
        self._groups[action.group] = placement_group(
            [dict(bundle) for bundle in shape.bundles],
            strategy=shape.strategy,
            bundle_label_selector=avoiding(shape, action.excluded),
        )

    def remove_group(self, action: RemoveGroup) -> None:
        """Give the group's resources back."""
        del self._shapes[action.group], self._needs[action.group]
        group = self._groups.pop(action.group, None)
        if group is not None:
            remove_placement_group(group)

    def find_groups(self) -> dict[str, Sequence[Bundle]]:
        """All groups of this sweep, by Ray's ids: the trial's own bundle first, which may be empty."""
        shapes = {group.id.hex(): self._shapes[number] for number, group in self._groups.items()}
        return {name: (shape.own, *shape.others) for name, shape in shapes.items()}

    def start(self, action: StartWorker) -> None:
        """Start an actor in its bundle of its group."""
        group, shape = self._groups[action.group], self._shapes[action.group]
        is_bare = action.is_spare or (action.rank == 0 and shape.is_head_empty)
        own = {} if is_bare else dict(shape.bundles[action.rank])
        options = {
            "num_cpus": own.pop("CPU", 0.0),
            "num_gpus": own.pop("GPU", 0.0),
            "memory": own.pop("memory", None),
            "resources": own or None,
        }
        handle = self._actor_class.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=action.rank, placement_group_capture_child_tasks=True
            ),
            max_restarts=0,
            max_concurrency=1,
            **options,
        ).remote()
        actor = Started(worker=action.worker, name=handle._actor_id.hex(), handle=handle)
        self._note_started(actor)
        self._watch(actor, handle.run.remote(*self._arguments_of(self._needs[action.group], shape)))

    def _arguments_of(self, needs: Needs, shape: Shape) -> tuple[Any, ...]:
        """The arguments of workers of this size; one that differs in memory alone gets those of all."""
        if needs.size not in self._arguments:
            self._arguments[needs.size] = (ray.put(shaped(self._setup, shape, is_sized=True)),)
        return self._arguments[needs.size]

    def kill(self, worker: int) -> None:
        """End the actor now, if it lives; `on_ended` is not called."""
        actor = self._alive.pop(worker, None)
        if actor is not None:
            ray.kill(actor.handle)
            self._orphans.add(actor.name)

    def explain_end(self, error: BaseException | None, node: str) -> Failure:
        """See `Pool`."""
        return explain_end(error, node)

    def remove_orphans(self) -> None:
        """See `Pool`: placement groups."""
        self._orphans.remove()

    def remove_last_orphans(self) -> None:
        """See `Pool`."""
        self._orphans.remove_last()

    def _watch(self, actor: Started, ref: Any) -> None:
        loop = asyncio.get_running_loop()

        def ended(future: Any) -> None:
            error = future.exception()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._take_end, actor, error)

        ref.future().add_done_callback(ended)


def explain_end(error: BaseException | None, node: str = "") -> Failure:
    """The facts of a worker's end: what Ray raised for its `run` call, and how its node is."""
    if error is None:
        return LEFT
    first_line = next((line for line in str(error).splitlines() if line.strip()), "")[:500]
    if isinstance(error, OutOfMemoryError):
        # Neither a RayActorError nor a RayTaskError, and it takes innocent workers along.
        bases = tuple(cls.__name__ for cls in type(error).__mro__)
        return Failure(origin="process", type="OutOfMemoryError", message=first_line, bases=bases)
    if isinstance(error, RayTaskError):
        return Failure(origin="process", type=type(error).__name__, message=str(error)[-500:])
    state = state_of_node(node, str(error))
    if isinstance(error, ActorDiedError) and getattr(error, "preempted", False) and state == "alive":
        state = "draining"
    if state != "alive":
        text = " ".join(str(error).split())[:500]
        return Failure(origin="process", type="NodeDied", message=text, node_state=state)
    why = "killed by a signal, or a crash in C code; `isolation: process` tells which signal"
    message = f"the trial's process died without a word: {why}: {first_line}"
    return Failure(origin="process", type="WorkerDied", message=message, node_state=state)
