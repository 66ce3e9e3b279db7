"""Worker actors and their placement groups: started, watched, killed; and what Ray says of how one died."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysweep.cluster.nodes import avoiding, state_of_node, with_memory
from raysweep.cluster.orphans import Orphans
from raysweep.cluster.worker import TrialWorker, WorkerSetup
from raysweep.core.commands import ExcludeNode
from raysweep.core.failures import Failure
from raysweep.spec import Resources


@dataclass(slots=True, eq=False)
class Worker:
    """One actor; `name` is what it calls itself on the link."""

    name: str
    group: PlacementGroup
    actor: Any = None
    is_ready: bool = False
    is_expected_to_end: bool = False
    node: str = ""
    jobs: set[int] = field(default_factory=set)


class ActorPool:
    """Starts worker actors in placement groups of one shape; groups are kept and used again.

    `on_ended(worker, failure)` is called on the event loop when an actor is gone; `failure` says how.
    `orphans` finds what its trials leave behind.
    """

    def __init__(
        self, resources: Resources, setup: WorkerSetup, on_ended: Callable[[Worker, Failure], None]
    ) -> None:
        self._resources = resources
        self._on_ended = on_ended
        self.orphans = Orphans()
        self._free: list[tuple[PlacementGroup, str]] = []
        self._groups: dict[PlacementGroup, Resources] = {}
        self._excluded: set[str] = set()
        self._avoided: set[str] = set()
        self._alive: dict[str, Worker] = {}
        # A call without arguments spares the worker Ray's deserialization, for which it would import pyarrow,
        # numpy, starlette and pydantic.v1: a third of its start. So its class brings the setup along.
        is_small = setup.pickled is None
        carrier = type("TrialWorker", (TrialWorker,), {"setup": setup if is_small else None})
        self._actor_class: Any = ray.remote(carrier)
        self._arguments = () if is_small else (ray.put(setup),)

    def take_group(self, memory_bytes: int | None = None) -> PlacementGroup:
        """A placement group that nobody uses: one given back, or a new one, with so much memory if given."""
        if memory_bytes is not None:
            self.drop_free()  # they hold what it may need
        elif self._free:
            return self._free.pop()[0]
        resources = with_memory(self._resources, memory_bytes)
        group: PlacementGroup = placement_group(
            resources.to_bundles(),
            strategy=resources.strategy,
            bundle_label_selector=avoiding(resources, self._excluded),
        )
        self._groups[group] = resources
        return group

    def give_group_back(self, group: PlacementGroup, node: str) -> None:
        """Keep the group, which is on `node`, for the next worker; not where it is of no use to it."""
        is_usual = self._groups.get(group) == self._resources
        if is_usual and node not in self._excluded and node not in self._avoided:
            self._free.append((group, node))
        elif self._groups.pop(group, None) is not None:
            remove_placement_group(group)

    def exclude(self, command: ExcludeNode) -> None:
        """Place nothing on the node from now on."""
        self._excluded.add(command.node)
        self.drop_free(self._excluded)

    def avoid(self, nodes: Collection[str]) -> None:
        """These nodes are about to go: keep no groups there. Ray places no new ones there itself."""
        self._avoided = set(nodes)
        if nodes:
            self.drop_free(nodes)

    def bundles_of(self, group: PlacementGroup) -> list[dict[str, float]]:
        """What the group holds."""
        return self._groups[group].to_bundles()

    def find_groups(self) -> dict[str, list[dict[str, float]]]:
        """All groups of this sweep, by their ids."""
        return {group.id.hex(): resources.to_bundles() for group, resources in self._groups.items()}

    def drop_free(self, nodes: Collection[str] | None = None) -> None:
        """Remove the groups that nobody uses: all, or those on some nodes."""
        free, self._free = self._free, []
        for group, node in free:
            if nodes is None or node in nodes:
                self._groups.pop(group)
                remove_placement_group(group)
            else:
                self._free.append((group, node))

    def start(self, group: PlacementGroup, *, is_spare: bool = False) -> Worker:
        """Start a worker in the group. A spare takes no resources: it shares those of the one it replaces."""
        head = {} if is_spare or self._resources.is_head_empty else dict(self.bundles_of(group)[0])
        options = {
            "num_cpus": head.pop("CPU", 0.0),
            "num_gpus": head.pop("GPU", 0.0),
            "memory": head.pop("memory", None),
            "resources": head or None,
        }
        actor = self._actor_class.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            ),
            max_restarts=0,
            max_concurrency=1,
            **options,
        ).remote()
        worker = Worker(name=actor._actor_id.hex(), group=group, actor=actor)
        self._alive[worker.name] = worker
        self._watch(worker, actor.run.remote(*self._arguments))
        return worker

    def kill(self, worker: Worker) -> None:
        """End the actor now; `on_ended` is not called."""
        worker.is_expected_to_end = True
        if self._alive.pop(worker.name, None) is not None:
            ray.kill(worker.actor)
            self.orphans.add(worker.name)

    async def close(self) -> None:
        """Kill every worker and remove every placement group."""
        for worker in list(self._alive.values()):
            self.kill(worker)
        for group in self._groups:
            remove_placement_group(group)
        self._groups.clear()
        self._free.clear()

    def _watch(self, worker: Worker, ref: Any) -> None:
        loop = asyncio.get_running_loop()

        def ended(future: Any) -> None:
            error = future.exception()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._take_end, worker, error)

        ref.future().add_done_callback(ended)

    def _take_end(self, worker: Worker, error: BaseException | None) -> None:
        if self._alive.pop(worker.name, None) is None or worker.is_expected_to_end:
            return
        ray.kill(worker.actor)
        self.orphans.add(worker.name)
        self._on_ended(worker, explain_end(error, worker.node))


def explain_end(error: BaseException | None, node: str = "") -> Failure:
    """The facts of a worker's end: what Ray raised for its `run` call, and how its node is."""
    if error is None:
        return Failure(
            origin="process", type="WorkerExited", message="the worker lost its link to the controller"
        )
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
    message = "the worker process died unexpectedly (killed, segfault, or os._exit): " + first_line
    return Failure(origin="process", type="WorkerDied", message=message, node_state=state)


def now() -> float:
    """Unix time in seconds: the shell's only clock for events."""
    return time.time()
