"""The nodes of a cluster, by its dashboard's state API."""

from __future__ import annotations

from typing import Any

from raysweep.cluster.preflight import Node
from raysweep.jobs.sync import Cluster


def live_nodes_of(cluster: Cluster) -> list[Node]:
    """The nodes that are alive, with what each has in all. Raises: ClusterError."""
    answer: Any = cluster.nodes()
    return [
        Node(
            name=str(row.get("node_name") or row.get("node_id", "")[:8]),
            total={name: float(amount) for name, amount in (row.get("resources_total") or {}).items()},
            labels=dict(row.get("labels") or {}),
        )
        for row in answer
        if row.get("state") == "ALIVE"
    ]
