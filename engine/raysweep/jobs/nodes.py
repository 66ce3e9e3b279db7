"""The nodes of a cluster, by its dashboard's state API."""

from __future__ import annotations

from raysweep.cluster.ray.preflight import Node
from raysweep.errors import ClusterUnreachableError
from raysweep.jobs.sync import Cluster


def live_nodes_of(cluster: Cluster) -> list[Node]:
    """The nodes that are alive, with what each has in all. Raises: ClusterError."""
    nodes = [
        Node(
            name=str(row.get("node_name") or row.get("node_id", "")[:8]),
            total={name: float(amount) for name, amount in (row.get("resources_total") or {}).items()},
            labels=dict(row.get("labels") or {}),
        )
        for row in cluster.nodes()
        if row.get("state") == "ALIVE"
    ]
    if not nodes:
        fix = "wait until a node has joined it, or add one"
        raise ClusterUnreachableError(cluster.connection.address, "the cluster has no live node", fix)
    return nodes
