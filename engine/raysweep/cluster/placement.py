"""Placements of a sweep's workers, as the shell sees them: one interface for Ray and for this machine.

A `Placement` lasts as long as its connection. It makes a `Pool` for each sweep, which carries out what the
fleet wants: groups with resources, and workers in them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import ClusterLostError, InfeasibleResourcesError
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.space.amounts import Needs, Size
from raysweep.specs import SweepSpec
from raysweep.specs.trial.shape import Bundle, Shape
from raysweep.worker.setup import WorkerSetup

if TYPE_CHECKING:
    from raysweep.cluster.evaluators import Answer, Evaluators
    from raysweep.cluster.gpu_shares import Share
    from raysweep.cluster.sharing.register import Register
    from raysweep.runs.folder import SweepFolder

OnEnded = Callable[[int, BaseException | None], None]
"""Takes the fleet's number of a worker that has ended and was not killed, and why, as its pool has it."""
LEFT: Final = Failure(
    origin="process", type="WorkerExited", message="the worker lost its link to the controller"
)
"""The failure of a worker that ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The trials that fit at once, and the usable nodes; the most memory that one can get, in bytes.

    `memory_bytes` 0: it is not looked at. `beyond`: of the sizes that trials need, those that do not fit.
    """

    slots: int
    nodes: int
    memory_bytes: int
    problem: str = ""
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One thing that waits. `can_never`: no trial's continuing could make room for it."""

    key: str
    problem: str
    can_never: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The holdings of this sweep: placement groups with their bundles; workers, and the trial each runs."""

    groups: Mapping[str, Sequence[Bundle]]
    workers: Mapping[str, str]
    owns_cluster: bool = False


@dataclass(slots=True, eq=False)
class Started:
    """A worker; `name` is what it calls itself on the link, `worker` the fleet's number for it."""

    worker: int
    name: str
    handle: Any = None


class Pool(ABC):
    """The groups and the workers of one sweep. Methods and `on_ended` run on the event loop.

    `shape_for(needs)`: what the group of a trial with these needs asks for.
    """

    def __init__(self, shape_for: Callable[[Needs], Shape], setup: WorkerSetup, on_ended: OnEnded) -> None:
        self._shape_for = shape_for
        self._setup = setup
        self._on_ended = on_ended
        self._shapes: dict[int, Shape] = {}
        self._needs: dict[int, Needs] = {}
        self._alive: dict[int, Started] = {}
        self._numbers: dict[str, int] = {}

    @abstractmethod
    def create_group(self, action: CreateGroup) -> None:
        """Ask for a group; it gets its place when there is room."""

    @abstractmethod
    def remove_group(self, action: RemoveGroup) -> None:
        """Give the group's resources back, or want it no more."""

    @abstractmethod
    def start(self, action: StartWorker) -> None:
        """Start a worker in its bundle of its group, as soon as that has a place."""

    @abstractmethod
    def kill(self, worker: int) -> None:
        """End the worker now, if it lives; `on_ended` is not called."""

    @abstractmethod
    def explain_end(self, error: BaseException | None, node: str) -> Failure:
        """The facts of a worker's end on this node; `error`: what `on_ended` got."""

    def find_groups(self) -> dict[str, Sequence[Bundle]]:
        """The groups of this sweep by names that the cluster knows; the trial's own bundle is the first."""
        return {}

    def remove_orphans(self) -> None:  # noqa: B027  none by default
        """Remove what trials of ended workers left on the cluster. For a thread; it may raise anything."""

    def remove_last_orphans(self) -> None:  # noqa: B027  none by default
        """As `remove_orphans`, at the sweep's end. Raises nothing."""

    async def leave(self) -> None:  # noqa: B027  nothing by default
        """The sweep ends: it wants no more places."""

    def number_of(self, name: str) -> int | None:
        """The fleet's number for the worker of this name, until it was killed or has ended."""
        return self._numbers.get(name)

    def name_of(self, worker: int) -> str:
        """The name of the worker on the link; empty: it is not started yet."""
        return self._alive[worker].name if worker in self._alive else ""

    def bundles_of(self, group: int) -> Sequence[Bundle]:
        """The bundles that the group holds, or a worker in it would."""
        return self._shapes[group].bundles if group in self._shapes else ()

    def forget(self, worker: int, name: str) -> None:
        """Ignore whatever still comes from this worker."""
        self._numbers.pop(name, None)

    def _note_shape(self, action: CreateGroup) -> Shape:
        shape = self._shape_for(action.needs)
        self._shapes[action.group], self._needs[action.group] = shape, action.needs
        return shape

    def _note_started(self, started: Started) -> None:
        self._alive[started.worker] = started
        self._numbers[started.name] = started.worker

    def _take_end(self, started: Started, error: BaseException | None) -> None:
        if started.worker in self._alive:
            self.kill(started.worker)
            self._on_ended(started.worker, error)


class Placement(ABC):
    """The place of sweeps' workers. `address`: of a Ray; `host`: where workers reach this process."""

    address: str
    host: str

    @abstractmethod
    def make_pool(
        self, spec: SweepSpec, setup: WorkerSetup, on_ended: OnEnded, on_started: Callable[[int], None]
    ) -> Pool:
        """The pool of one sweep. `on_started`: a worker is started for which there was no room before."""

    @abstractmethod
    def make_evaluators(self, spec: SweepSpec, folder: SweepFolder, answer: Answer) -> Evaluators:
        """The evaluators of a sweep that has evaluations."""

    @abstractmethod
    def share_gpus(self, spec: SweepSpec) -> tuple[SweepSpec, Share | None]:
        """The spec with the part of a GPU that its `gpu_memory` is here, and how that came.

        As it is, and None, without `gpu_memory`, or inline. Raises: InfeasibleResourcesError.
        """

    @abstractmethod
    def find_room(
        self, spec: SweepSpec, excluded: Collection[str] = (), sizes: Collection[Size] = ()
    ) -> Room:
        """The room for trials on the nodes that are neither excluded nor about to go.

        `sizes`: what some of them need (`space.amounts.Size`).

        Raises:
            InfeasibleResourcesError: Not even one trial fits; says what was asked for and what there is.
        """

    @abstractmethod
    def explain_place(self, asked: Sequence[Bundle], held: Holdings) -> str:
        """The reason why a worker has no place: its request, the free resources, and who has the rest."""

    def check(self, spec: SweepSpec) -> None:  # noqa: B027  nothing by default
        """Refuse what cannot run here, before anything is written. Raises: SpecError."""

    def prepare(self, spec: SweepSpec) -> None:  # noqa: B027  nothing by default
        """A sweep is about to begin: start what takes a moment."""

    def find_room_or_why(
        self, spec: SweepSpec, excluded: Collection[str], sizes: Collection[Size] = ()
    ) -> Room:
        """As `find_room`, with the reason in the room where there is none."""
        try:
            return self.find_room(spec, excluded, sizes)
        except InfeasibleResourcesError as error:
            return Room(slots=0, nodes=0, memory_bytes=0, problem=str(error))

    def find_draining(self) -> dict[str, float | None]:
        """The nodes that leave soon, and when (None: unknown)."""
        return {}

    def find_waiting(self, held: Holdings) -> list[Waiting]:
        """The demands of this sweep's trials that wait at present."""
        return []

    def find_register(self, name: str) -> Register | None:
        """The register of the holdings of sweeps that share the cluster; None: there are no others."""
        return None

    @property
    def has_metrics(self) -> bool:
        """True if an agent here offers metrics to Prometheus."""
        return False

    @property
    def is_all_ours(self) -> bool:
        """True if nothing but this sweep uses the cluster."""
        return False

    def find_loss(self) -> ClusterLostError | None:
        """The loss of the cluster; None: it is there."""
        return None

    def telling(self, listener: Callable[[ClusterLostError], None]) -> AbstractContextManager[None]:
        """In here `listener` is called, on any thread, when it is gone."""
        return nullcontext()
