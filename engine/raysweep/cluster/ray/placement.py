"""Ray as a `Placement`: placement groups and actors on the cluster that this process is connected to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from raysweep.cluster.placement import Holdings, OnEnded, Placement, Pool, Room, Waiting
from raysweep.cluster.ray.actors import ActorPool
from raysweep.cluster.ray.connection import is_alone
from raysweep.cluster.ray.demand import explain_place, look_at_all, look_for_waiting
from raysweep.cluster.ray.gpus import share_gpus
from raysweep.cluster.ray.nodes import find_room
from raysweep.cluster.ray.ordered_groups import OrderedPool
from raysweep.cluster.ray.shared_connection import RayConnection
from raysweep.cluster.sharing.register import Register
from raysweep.errors import ClusterLostError
from raysweep.raycompat.cluster import ClusterNotes, draining_nodes
from raysweep.space.amounts import Size
from raysweep.specs import SweepSpec
from raysweep.specs.trial.shape import Bundle
from raysweep.worker.setup import WorkerSetup

if TYPE_CHECKING:
    from raysweep.cluster.evaluators import Answer, Evaluators
    from raysweep.cluster.gpu_shares import Share
    from raysweep.runs.folder import SweepFolder


class RayPlacement(Placement):
    """See `Placement`."""

    def __init__(self, connection: RayConnection) -> None:
        self._connection = connection
        self.address, self.host = connection.address, connection.host

    def make_pool(
        self, spec: SweepSpec, setup: WorkerSetup, on_ended: OnEnded, on_started: Callable[[int], None]
    ) -> Pool:
        """See `Placement`."""
        if spec.autoscaled:
            return ActorPool(spec.shape_for, setup, on_ended)
        return OrderedPool(spec.shape_for, setup, on_ended, on_started)

    def make_evaluators(self, spec: SweepSpec, folder: SweepFolder, answer: Answer) -> Evaluators:
        """See `Placement`."""
        from raysweep.cluster.ray.evaluators import RayEvaluators

        assert spec.evaluate is not None, "the spec has evaluations"
        return RayEvaluators(spec, spec.evaluate, folder, answer)

    def share_gpus(self, spec: SweepSpec) -> tuple[SweepSpec, Share | None]:
        """See `Placement`."""
        return share_gpus(spec)

    def find_room(
        self, spec: SweepSpec, excluded: Collection[str] = (), sizes: Collection[Size] = ()
    ) -> Room:
        """See `Placement`."""
        return find_room(spec, excluded, sizes)

    def explain_place(self, asked: Sequence[Bundle], held: Holdings) -> str:
        """See `Placement`."""
        return explain_place(asked, held)

    def find_draining(self) -> dict[str, float | None]:
        """See `Placement`."""
        return draining_nodes()

    def find_waiting(self, held: Holdings) -> list[Waiting]:
        """See `Placement`."""
        return look_for_waiting(held)

    def find_register(self, name: str) -> Register:
        """See `Placement`."""
        return Register(ClusterNotes(), name, look_at_all)

    @property
    def has_metrics(self) -> bool:
        """See `Placement`."""
        return True

    @property
    def is_all_ours(self) -> bool:
        """See `Placement`."""
        return self._connection.is_embedded and is_alone()

    def find_loss(self) -> ClusterLostError | None:
        """See `Placement`."""
        return self._connection.find_loss()

    def telling(self, listener: Callable[[ClusterLostError], None]) -> AbstractContextManager[None]:
        """See `Placement`."""
        return self._connection.telling(listener)
