"""Worker actors and their placement groups: started, watched, killed; and what Ray says of how one died."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysweep.cluster.preflight import Node
from raysweep.cluster.worker import TrialWorker, WorkerSetup
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
    """

    def __init__(
        self, resources: Resources, setup: WorkerSetup, on_ended: Callable[[Worker, Failure], None]
    ) -> None:
        self._resources = resources
        self._on_ended = on_ended
        self._free: list[PlacementGroup] = []
        self._groups: list[PlacementGroup] = []
        self._alive: dict[str, Worker] = {}
        # A call without arguments spares the worker Ray's deserialization, for which it would import pyarrow,
        # numpy, starlette and pydantic.v1: a third of its start. So its class brings the setup along.
        is_small = setup.pickled is None
        carrier = type("TrialWorker", (TrialWorker,), {"setup": setup if is_small else None})
        self._actor_class: Any = ray.remote(carrier)
        self._arguments = () if is_small else (ray.put(setup),)

    def take_group(self) -> PlacementGroup:
        """A placement group that nobody uses: one given back, or a new one."""
        if self._free:
            return self._free.pop()
        group: PlacementGroup = placement_group(
            self._resources.to_bundles(),
            strategy=self._resources.strategy,
            bundle_label_selector=[self._resources.label_selector] * len(self._resources.to_bundles())
            if self._resources.label_selector
            else None,
        )
        self._groups.append(group)
        return group

    def give_group_back(self, group: PlacementGroup) -> None:
        """Keep the group for the next worker."""
        self._free.append(group)

    def start(self, group: PlacementGroup, *, is_spare: bool = False) -> Worker:
        """Start a worker in the group. A spare takes no resources: it shares those of the one it replaces."""
        head = {} if is_spare or self._resources.is_head_empty else dict(self._resources.to_bundles()[0])
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
        self._on_ended(worker, explain_end(error))


def explain_end(error: BaseException | None) -> Failure:
    """The facts of a worker's end, from what Ray raised for its `run` call."""
    if error is None:
        return Failure(
            origin="process", type="WorkerExited", message="the worker lost its link to the controller"
        )
    first_line = next((line for line in str(error).splitlines() if line.strip()), "")[:500]
    if isinstance(error, OutOfMemoryError):
        return Failure(origin="memory", type="OutOfMemoryError", message=first_line)
    if isinstance(error, RayTaskError):
        return Failure(origin="process", type=type(error).__name__, message=str(error)[-500:])
    if isinstance(error, ActorDiedError) and _is_node_gone(error):
        return Failure(origin="node", type="NodeDied", message=" ".join(str(error).split())[:500])
    return Failure(
        origin="process",
        type="WorkerDied",
        message="the worker process died unexpectedly (killed, segfault, or os._exit): " + first_line,
    )


def _is_node_gone(error: ActorDiedError) -> bool:
    text = str(error)
    if getattr(error, "preempted", False) or "node has died" in text or "node was terminated" in text:
        return True
    return any(not node["Alive"] and node["NodeID"] in text for node in ray.nodes())  # type: ignore[no-untyped-call]


def live_nodes() -> list[Node]:
    """The nodes of the cluster that are alive, with their totals."""
    return [
        Node(
            name=node.get("NodeManagerHostname") or node["NodeID"][:8],
            total=node["Resources"],
            labels=node.get("Labels", {}),
        )
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]


def now() -> float:
    """Unix time in seconds: the shell's only clock for events."""
    return time.time()
