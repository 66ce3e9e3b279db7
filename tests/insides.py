"""What tests look up in Ray's insides; where the product needs it too, it is in raysweep.raycompat."""

from __future__ import annotations

from typing import Any


def actor_states() -> list[str]:
    """The state of each actor that the connected cluster knows of."""
    from ray._private.state import state

    return [actor["State"] for actor in state.actor_table(None).values()]


def live_actors(address: str) -> list[str]:
    """The class of each actor of this cluster that is up; nobody needs to be connected to it."""
    from ray._raylet import GcsClientOptions, GlobalStateAccessor
    from ray.core.generated import gcs_pb2

    options = GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    accessor = GlobalStateAccessor(options)
    accessor.connect()
    actors = [gcs_pb2.ActorTableData.FromString(each) for each in accessor.get_actor_table(None, None)]
    return [each.class_name for each in actors if each.state == gcs_pb2.ActorTableData.ALIVE]


def drain(address: str, node: str, deadline_ms: int) -> None:
    """What a cloud's notice of preemption leads to: nothing new there, and the node goes at the deadline."""
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    reason: Any = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    is_accepted, why = GcsClient(address=address).drain_node(node, reason, "as the test asks", deadline_ms)
    assert is_accepted, why


def pb2_insides() -> tuple[Any, Any]:
    """The modules of Ray Tune's PB2: what it makes of its data, and its Gaussian process."""
    from ray.tune.schedulers import pb2, pb2_utils

    return pb2, pb2_utils


def pbt_insides() -> tuple[Any, Any]:
    """What Ray Tune's PBT makes of a config, and its state of a trial."""
    from ray.tune.schedulers.pbt import _explore, _PBTTrialState

    return _explore, _PBTTrialState


def train_worker() -> type:
    """The class of the actor that is a worker of Ray Train."""
    from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker

    return RayTrainWorker
