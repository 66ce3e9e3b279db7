"""State of the cluster that no public call of Ray shows, from its control store; needs no dashboard."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.state import state
from ray._raylet import PlacementGroupID
from ray.core.generated import gcs_pb2
from ray.experimental import internal_kv
from ray.util.placement_group import PlacementGroup, remove_placement_group

Bundle = Mapping[str, float]
_NAMESPACE = "raysweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Tasks and actors of one shape that wait: for room (`ready`), for a node that fits (`infeasible`)."""

    shape: Bundle
    ready: int = 0
    infeasible: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGroup:
    """A placement group without a place, and the actor that made it; ids in hex."""

    group_id: str
    creator: str
    bundles: Sequence[Bundle]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """All that waits for resources."""

    demands: Sequence[Demand]
    groups: Sequence[WaitingGroup]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that an autoscaler could add. `max_count` None: any number of them."""

    name: str
    resources: Bundle
    max_count: int | None


def own_processes() -> dict[str, subprocess.Popen[bytes]]:
    """The processes without which the Ray that this process has started is of no use."""
    from ray._private import worker

    node: Any = worker._global_node
    started: Mapping[str, Any] = node.all_processes
    return {name: started[name][0].process for name in ("raylet", "gcs_server") if started.get(name)}


def _accessor() -> Any:
    """The connection to what the cluster's head knows."""
    connect = getattr(state, "_connect_and_get_accessor", None)
    if connect is not None:
        return connect()
    state._check_connected()  # type: ignore[attr-defined]  # Ray 2.50
    return state.global_state_accessor  # type: ignore[attr-defined]


def read_load() -> Load:
    """The demand that waits for resources at present."""
    usage: Any = gcs_pb2.ResourceUsageBatchData.FromString(  # type: ignore[attr-defined]
        _accessor().get_all_resource_usage()
    )
    return Load(
        demands=[
            Demand(
                shape=dict(each.shape),
                ready=each.num_ready_requests_queued,
                infeasible=each.num_infeasible_requests_queued,
            )
            for each in usage.resource_load_by_shape.resource_demands
        ],
        groups=[
            WaitingGroup(
                group_id=each.placement_group_id.hex(),
                creator=each.creator_actor_id.hex(),
                bundles=[dict(bundle.unit_resources) for bundle in each.bundles],
            )
            for each in usage.placement_group_load.placement_group_data
        ],
    )


def free_by_node() -> dict[str, Bundle]:
    """The free resources of each live node, with the names that Ray makes for placement groups and nodes."""
    found: dict[str, Bundle] = state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return found


def total_by_node() -> dict[str, Bundle]:
    """The resources of each live node in all."""
    return dict(state.total_resources_per_node())


def labels_by_node() -> dict[str, Mapping[str, str]]:
    """The labels of each node."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node.get("Labels", {}) for node in nodes}


def draining_nodes() -> dict[str, float | None]:
    """The nodes that are about to go, with the time (Unix seconds) at which they do, if that is known.

    `ray.nodes()` shows nothing of it.
    """
    deadlines: dict[str, int] = state.get_draining_nodes()
    return {node: milliseconds / 1000 if milliseconds else None for node, milliseconds in deadlines.items()}


def node_kinds() -> list[NodeKind]:
    """The nodes that the autoscaler could add, if the cluster's configuration lists them; few do."""
    config: Any = state.get_cluster_config()
    return [
        NodeKind(
            name=group.name,
            resources=dict(group.resources),
            max_count=None if group.max_count < 0 else group.max_count,
        )
        for group in (config.node_group_configs if config is not None else ())
    ]


def can_grow() -> bool:
    """True if an autoscaler could add nodes."""
    return bool(state.get_max_resources_from_cluster_config())


class ClusterNotes:
    """Small texts in the control store, which all drivers of a cluster see."""

    def put(self, key: str, value: str) -> None:
        """Write one."""
        internal_kv._internal_kv_put(key, value, namespace=_NAMESPACE)

    def get(self, key: str) -> str | None:
        """One of them; None: it is gone."""
        found: bytes | None = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
        return None if found is None else found.decode(errors="replace")

    def keys(self, prefix: str) -> list[str]:
        """Those whose key begins so."""
        found: list[bytes] = internal_kv._internal_kv_list(prefix, namespace=_NAMESPACE)
        return [key.decode(errors="replace") for key in found]

    def delete(self, key: str) -> None:
        """Remove one."""
        internal_kv._internal_kv_del(key, namespace=_NAMESPACE)


def find_groups_of(actors: Collection[str]) -> list[bytes]:
    """The ids of the placement groups that these actors made and that hold resources, or wait for them."""
    table: Any = gcs_pb2.PlacementGroupTableData  # type: ignore[attr-defined]
    rows = map(table.FromString, _accessor().get_placement_group_table())
    return [
        row.placement_group_id
        for row in rows
        if row.creator_actor_id.hex() in actors and not row.is_detached and row.state != table.REMOVED
    ]


def remove_group(group_id: bytes) -> None:
    """Remove a placement group of any actor's."""
    remove_placement_group(PlacementGroup(PlacementGroupID(group_id)))
