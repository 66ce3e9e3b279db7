"""This machine as a `Placement`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from raysweep.cluster.gpu_shares import Share, find_share, smallest_here
from raysweep.cluster.here.link import StarterLink
from raysweep.cluster.here.machine import Machine, find_machine
from raysweep.cluster.here.pool import HerePool
from raysweep.cluster.placement import Holdings, OnEnded, Placement, Pool, Room
from raysweep.cluster.ray.preflight import Node, count_slots, count_trials, show, show_all
from raysweep.documents.code.tune_objects import has_parameters
from raysweep.errors import InfeasibleResourcesError, SpecError
from raysweep.space.amounts import Needs, Size
from raysweep.specs import SweepSpec
from raysweep.specs.trial.shape import Bundle
from raysweep.worker.host.nvidia import DriverError
from raysweep.worker.setup import WorkerSetup

if TYPE_CHECKING:
    from raysweep.cluster.evaluators import Answer, Evaluators
    from raysweep.runs.folder import SweepFolder

log = logging.getLogger("raysweep")
FIX: Final = 'run it with address="local" (an embedded Ray), or on a cluster'


class HerePlacement(Placement):
    """See `Placement`. Workers of one sweep, and its evaluations, have one starter."""

    def __init__(self, machine: Machine) -> None:
        self.address, self.host = "", "127.0.0.1"
        self._machine = machine
        self._link: StarterLink | None = None

    def make_pool(
        self, spec: SweepSpec, setup: WorkerSetup, on_ended: OnEnded, on_started: Callable[[int], None]
    ) -> Pool:
        """See `Placement`."""
        return HerePool(spec.shape_for, setup, on_ended, self._machine, self._find_link())

    def make_evaluators(self, spec: SweepSpec, folder: SweepFolder, answer: Answer) -> Evaluators:
        """See `Placement`."""
        from raysweep.cluster.here.evaluators import HereEvaluators

        assert spec.evaluate is not None, "the spec has evaluations"
        return HereEvaluators(spec, spec.evaluate, folder, answer, self._machine, self._find_link())

    def check(self, spec: SweepSpec) -> None:
        """See `Placement`: what needs Ray. Raises: SpecError."""
        if spec.driver is not None:
            raise SpecError("scaling.driver", "a Ray Train run cannot run without Ray", FIX)
        if spec.gang is None and spec.shape.others and not spec.is_inline:
            problem = "a trial cannot start tasks and actors of Ray in bundles of its own without Ray"
            raise SpecError("resources.bundles", problem, FIX)
        if has_parameters(spec.trainable):
            problem = "tune.with_parameters keeps what it was given in Ray's object store"
            raise SpecError("trainable", problem, f"load it in the trainable, or {FIX}")
        if spec.evaluate is not None and spec.evaluate.is_by_trainer:
            raise SpecError("evaluate", "the trainer of a Ray Train run cannot evaluate without Ray", FIX)

    def share_gpus(self, spec: SweepSpec) -> tuple[SweepSpec, Share | None]:
        """See `Placement`."""
        size_bytes = spec.resources.gpu_memory_bytes
        if size_bytes is None or spec.is_inline:
            return spec, None
        try:
            sizes = [(self._machine.name, smallest_here())]
        except DriverError as error:
            fix = "give gpu, the part of a GPU"
            raise InfeasibleResourcesError("resources.gpu_memory", str(error), fix) from error
        share = find_share(size_bytes, sizes)
        return spec.replace(resources=spec.resources.with_gpu_part(share.part)), share

    def find_room(
        self, spec: SweepSpec, excluded: Collection[str] = (), sizes: Collection[Size] = ()
    ) -> Room:
        """See `Placement`. Nodes are not added here, whatever `autoscaled` says."""
        if spec.is_inline:
            return Room(slots=1, nodes=1, memory_bytes=0)
        if self._machine.name in excluded:
            problem = "this machine is excluded: trials failed on it as on no other"
            raise InfeasibleResourcesError("resources", problem, "look at the trials' errors")
        slots = count_trials(spec, self.nodes, spec.max_concurrent_trials)
        beyond = tuple(size for size in sorted(sizes) if not _fits(spec, size, self.nodes))
        most = int(self._machine.total["memory"])
        return Room(slots=slots, nodes=1, memory_bytes=most, beyond=beyond)

    def prepare(self, spec: SweepSpec) -> None:
        """See `Placement`: the starter imports what workers need while the sweep is claimed."""
        if not spec.is_inline and self._link is None:
            self._link = StarterLink()

    @property
    def nodes(self) -> list[Node]:
        """This machine."""
        return [Node(name=self._machine.name, total=self._machine.total, labels={})]

    def explain_place(self, asked: Sequence[Bundle], held: Holdings) -> str:
        """See `Placement`."""
        return (
            f"a worker waits for a place: it asks for {show_all(asked)}; of this machine is free"
            f" {show(self._machine.free)}, of {show(self._machine.total)}"
        )

    def close(self) -> None:
        """End the starter."""
        if self._link is not None:
            self._link.close()

    def _find_link(self) -> StarterLink:
        if self._link is None:
            self._link = StarterLink()
        self._link.attach()
        return self._link


def _fits(spec: SweepSpec, size: Size, nodes: list[Node]) -> bool:
    try:
        count_slots(spec.shape_for(Needs(size=size)), nodes, limit=1)
    except InfeasibleResourcesError:
        return False
    return True


class _Shared:
    """The machine, as the sweeps that run on it now count it together. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._machine: Machine | None = None
        self._users = 0

    @contextmanager
    def used(self, num_cpus: float | None) -> Iterator[Machine]:
        with self._lock:
            machine = self._machine = self._machine or find_machine(num_cpus)
            self._users += 1
        if num_cpus and machine.total["CPU"] != num_cpus:
            text = "num_cpus: %g is ignored: another sweep of this process uses this machine, with %g CPUs"
            log.warning(text, num_cpus, machine.total["CPU"])
        try:
            yield machine
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._machine = None


_shared: Final = _Shared()


@contextmanager
def here(num_cpus: float | None = None) -> Iterator[HerePlacement]:
    """This machine for one sweep. `num_cpus`: how many to use of it; default: as many as there are."""
    with _shared.used(num_cpus) as machine:
        placement = HerePlacement(machine)
        try:
            yield placement
        finally:
            placement.close()
