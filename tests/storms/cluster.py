"""A cluster that stands in for Ray's: nodes that come, drain and die, placement groups, and actors as forks.

Everything else of a sweep is real: controller, fleet, link, workers, journal, takeover, storage. What is
replaced stands in `install`, each with its reason; it is done in the process of one controller only.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

import ray
import ray.exceptions

import raysweep.cluster.ray.actors as actors
import raysweep.cluster.ray.nodes as nodes
import raysweep.cluster.run as run
from raysweep.cluster.evaluators import Evaluators, make_evaluation_setup
from raysweep.cluster.placement import Placement, Pool, Room, Started
from raysweep.cluster.preparation import shaped
from raysweep.cluster.ray.preflight import Node
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.space.amounts import Needs
from raysweep.specs.trial.shape import Shape
from raysweep.worker.evaluation import EvaluationJob
from raysweep.worker.setup import WorkerSetup
from tests.storms.workers import Ended, Evaluate, Kill, Start, take_evaluated

MEMORY_BYTES: Final = 8.0 * 2**30
DRAIN_S: Final = 2.0
Bundle = dict[str, float]


class NodeGone(ray.exceptions.ActorDiedError):
    """What Ray raises for an actor whose node has died."""

    def __str__(self) -> str:
        return "The actor died because its node has died."


@dataclass(slots=True)
class StandInCluster:
    """Nodes with their CPUs; the facts that Ray's control store would give."""

    cpus: tuple[int, ...]
    nodes: dict[str, Bundle] = field(default_factory=dict)
    draining: dict[str, float | None] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    on_change: Callable[[], None] = lambda: None
    on_death: Callable[[str], None] = lambda node: None
    on_evaluated: Callable[[int], None] = lambda number: None

    def __post_init__(self) -> None:
        for cpus in self.cpus:
            self.add(cpus)

    def add(self, cpus: int) -> None:
        """A node joins."""
        self.nodes[f"{len(self.nodes):08x}node"] = {"CPU": float(cpus), "memory": MEMORY_BYTES}
        self.on_change()

    def kill(self, index: int) -> None:
        """A node dies with all that runs on it."""
        living = [name for name in self.nodes if name not in self.dead]
        if living:
            node = living[index % len(living)]
            self.dead.add(node)
            self.draining.pop(node, None)
            self.on_death(node)

    def drain(self, index: int) -> None:
        """A node is about to go."""
        living = [name for name in self.nodes if name not in self.dead]
        if living:
            self.draining[living[index % len(living)]] = time.time() + DRAIN_S

    def live_nodes(self) -> list[Node]:
        """See `raysweep.cluster.ray.nodes.live_nodes`."""
        living = {name: total for name, total in self.nodes.items() if name not in self.dead}
        return [Node(name=name, total=dict(total), labels={}, node_id=name) for name, total in living.items()]

    def draining_nodes(self) -> dict[str, float | None]:
        """See `raysweep.raycompat.cluster.draining_nodes`."""
        return dict(self.draining)

    def state_of_node(self, node: str, text: str) -> Any:
        """See `raysweep.cluster.ray.nodes.state_of_node`."""
        if node in self.dead or "node has died" in text:
            return "dead"
        return "draining" if node in self.draining else "alive"

    def place(self, bundles: list[Bundle], held: list[tuple[str, Bundle]], avoided: set[str]) -> list[str]:
        """The nodes for these bundles beside what is held, or none."""
        off = self.dead | avoided | set(self.draining)
        free = {name: dict(total) for name, total in self.nodes.items() if name not in off}
        for node, bundle in held:
            if node in free:
                _take(free[node], bundle)
        found: list[str] = []
        for bundle in bundles:
            fits = [
                name for name, rest in free.items() if all(rest.get(k, 0) >= v for k, v in bundle.items())
            ]
            if not fits:
                return []
            _take(free[fits[0]], bundle)
            found.append(fits[0])
        return found


def _take(free: Bundle, bundle: Bundle) -> None:
    for name, amount in bundle.items():
        free[name] = free.get(name, 0.0) - amount


class StandInPool(Pool):
    """Groups in a `StandInCluster`, and workers that a fork server starts."""

    def __init__(
        self,
        shape_for: Callable[[Needs], Shape],
        setup: WorkerSetup,
        on_ended: Callable[[int, BaseException | None], None],
        *,
        cluster: StandInCluster,
        server: Connection,
        folder: str,
    ) -> None:
        super().__init__(shape_for, setup, on_ended)
        self._cluster, self._server, self._folder = cluster, server, folder
        self._avoided: dict[int, set[str]] = {}
        self._placed: dict[int, list[str]] = {}
        self._waiting: list[StartWorker] = []
        self._nodes: dict[int, str] = {}
        self._fresh = itertools.count(1)
        cluster.on_change, cluster.on_death = self._go_on, self._lose
        asyncio.get_running_loop().add_reader(server.fileno(), self._read)

    def create_group(self, action: CreateGroup) -> None:
        """Have it placed when there is room."""
        self._note_shape(action)
        self._avoided[action.group] = set(action.excluded)
        self._go_on()

    def remove_group(self, action: RemoveGroup) -> None:
        """Give its room back."""
        del self._shapes[action.group], self._needs[action.group]
        self._avoided.pop(action.group, None)
        self._placed.pop(action.group, None)
        self._go_on()

    def start(self, action: StartWorker) -> None:
        """Have a worker started once its group has a place."""
        self._note_started(Started(worker=action.worker, name=f"{next(self._fresh):032x}"))
        self._waiting.append(action)
        self._go_on()

    def kill(self, worker: int) -> None:
        """SIGKILL, as `ray.kill`."""
        if self._alive.pop(worker, None) is not None:
            self._server.send(Kill(worker))

    def explain_end(self, error: BaseException | None, node: str) -> Any:
        """As of Ray's actors."""
        return actors.explain_end(error, node)

    def _go_on(self) -> None:
        for group, avoided in self._avoided.items():
            if group not in self._placed:
                placed = self._cluster.place(self.bundles_of(group), self._held(), avoided)
                if placed:
                    self._placed[group] = placed
        for action in [each for each in self._waiting if each.group in self._placed]:
            self._waiting.remove(action)
            if action.worker in self._alive:
                self._fork(action)

    def _held(self) -> list[tuple[str, Bundle]]:
        return [
            (node, bundle)
            for group, placed in self._placed.items()
            for node, bundle in zip(placed, self.bundles_of(group), strict=True)
        ]

    def _fork(self, action: StartWorker) -> None:
        node = self._nodes[action.worker] = self._placed[action.group][action.rank]
        setup = shaped(self._setup, self._shapes[action.group])
        self._server.send(Start(action.worker, self._alive[action.worker].name, node, setup, self._folder))

    def _read(self) -> None:
        while self._server.poll():
            ended: Ended = self._server.recv()
            if ended.worker < 0:
                self._cluster.on_evaluated(ended.worker)
                continue
            actor = self._alive.get(ended.worker)
            if actor is not None:
                self._take_end(actor, self._error_of(ended))

    def _error_of(self, ended: Ended) -> BaseException | None:
        if ended.exit_code == 0:
            return None
        is_gone = self._nodes.get(ended.worker) in self._cluster.dead
        return NodeGone() if is_gone else ray.exceptions.ActorDiedError()

    def _lose(self, node: str) -> None:
        for group, placed in list(self._placed.items()):
            if node in placed:
                del self._placed[group]
        for worker in [each for each, place in self._nodes.items() if place == node and each in self._alive]:
            self._server.send(Kill(worker))
        self._go_on()


class StandInEvaluators(Evaluators):
    """Evaluations in processes that a fork server starts; these have negative numbers."""

    def __init__(
        self, spec: Any, folder: Any, answer: Any, *, cluster: StandInCluster, server: Connection
    ) -> None:
        super().__init__(spec, spec.evaluate, answer)
        self._setup = make_evaluation_setup(spec, spec.evaluate, folder)
        self._server = server
        self._fresh = itertools.count(1)
        cluster.on_evaluated = self._take

    def _ask_for_place(self) -> None:
        """They need no place."""

    def _has_place(self, slot: Any) -> bool:
        return True

    def _give_back(self, slot: Any) -> None:
        """There is none."""

    def _launch(self, slot: Any, job: EvaluationJob) -> Any:
        number = -next(self._fresh)
        self._server.send(Evaluate(number, self._setup, job))
        return number

    def _take(self, number: int) -> None:
        found = take_evaluated(number)
        for slot in self._slots:
            if slot.ref == number:
                self._take_end(slot, slot.ref, found, None if found else ray.exceptions.WorkerCrashedError())

    def _kill(self, ref: Any) -> None:
        self._server.send(Kill(ref))


class StandInPlacement(Placement):
    """The cluster as the shell sees it."""

    address, host = "local", "127.0.0.1"

    def __init__(self, cluster: StandInCluster, server: Connection, folder: str) -> None:
        self._cluster, self._server, self._folder = cluster, server, folder

    def make_pool(self, spec: Any, setup: Any, on_ended: Any, on_started: Any) -> StandInPool:
        """See `Placement`."""
        return StandInPool(
            spec.shape_for,
            setup,
            on_ended,
            cluster=self._cluster,
            server=self._server,
            folder=self._folder,
        )

    def make_evaluators(self, spec: Any, folder: Any, answer: Any) -> StandInEvaluators:
        """See `Placement`."""
        return StandInEvaluators(spec, folder, answer, cluster=self._cluster, server=self._server)

    def share_gpus(self, spec: Any) -> Any:
        """It has none."""
        return spec, None

    def find_room(self, spec: Any, excluded: Any = (), sizes: Any = ()) -> Room:
        """As on Ray."""
        return nodes.find_room(spec, excluded, sizes)

    def explain_place(self, asked: Any, held: Any) -> str:
        """See `Placement`."""
        return "a worker waits for a place"

    def find_draining(self) -> dict[str, float | None]:
        """See `Placement`."""
        return self._cluster.draining_nodes()


def install(cluster: StandInCluster, server: Connection, folder: str) -> None:
    """Replace Ray in this process, which must be one of its own."""

    @contextmanager
    def placed(address: str | None = None, num_cpus: float | None = None) -> Iterator[Placement]:
        yield StandInPlacement(cluster, server, folder)

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the engine asked Ray for something that the stand-in cluster does not replace")

    replaced: tuple[tuple[Any, str, Any], ...] = (
        (run, "placed", placed),  # no Ray starts
        (ray, "init", refuse),
        # What only the control store knows.
        (nodes, "live_nodes", cluster.live_nodes),
        (nodes, "draining_nodes", cluster.draining_nodes),
        (actors, "state_of_node", cluster.state_of_node),
    )
    for module, name, stand_in in replaced:
        assert hasattr(module, name), f"{module.__name__}.{name} is gone"
        setattr(module, name, stand_in)
