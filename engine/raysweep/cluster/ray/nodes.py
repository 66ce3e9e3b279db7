"""The nodes of the cluster: which are alive, which will leave soon, and how many trials fit."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import ray

from raysweep.cluster.placement import Room
from raysweep.cluster.ray.preflight import Node, count_slots, count_trials
from raysweep.core.vocabulary.failures import NodeState
from raysweep.errors import InfeasibleResourcesError
from raysweep.raycompat.cluster import draining_nodes, node_kinds
from raysweep.space.amounts import Needs, Size
from raysweep.specs import SweepSpec
from raysweep.specs.trial.shape import Shape

# Ray puts this label on every node, so that placement can go round one.
NODE_LABEL = "ray.io/node-id"
MAX_OF_A_KIND: Final = 64


def live_nodes() -> list[Node]:
    """The nodes of the cluster that are alive, with their totals."""
    return [
        Node(
            name=node.get("NodeManagerHostname") or node["NodeID"][:8],
            total=node["Resources"],
            labels=node.get("Labels", {}),
            node_id=node["NodeID"],
        )
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]


def find_room(spec: SweepSpec, excluded: Collection[str] = (), sizes: Collection[Size] = ()) -> Room:
    """The room for trials on the nodes that are neither excluded nor about to go; or that are to come.

    `sizes`: what some of them need (`space.amounts.Size`).

    Raises:
        InfeasibleResourcesError: Not even one trial fits; says what was asked for and what there is.
    """
    if spec.is_inline:
        return Room(slots=1, nodes=1, memory_bytes=0)
    draining = draining_nodes()
    nodes = [node for node in live_nodes() if node.node_id not in excluded and node.node_id not in draining]
    if spec.autoscaled:
        return _room_to_come(spec, nodes)
    if not nodes:
        raise InfeasibleResourcesError(
            "resources", "the cluster has no usable node at present", "add a node, or wait for one"
        )
    slots = count_trials(spec, nodes, spec.max_concurrent_trials)
    most = max(int(node.total.get("memory", 0)) for node in nodes)
    beyond = tuple(size for size in sorted(sizes) if not _fits(spec, size, nodes))
    return Room(slots=slots, nodes=len(nodes), memory_bytes=most, beyond=beyond)


def _fits(spec: SweepSpec, size: Size, nodes: list[Node]) -> bool:
    try:
        count_slots(spec.shape_for(Needs(size=size)), nodes, limit=1)
    except InfeasibleResourcesError:
        return False
    return True


def _room_to_come(spec: SweepSpec, nodes: list[Node]) -> Room:
    """Room for all that may run at once: groups that wait for a place are what an autoscaler acts on.

    Few clusters say which kinds of node they could add; those that do are taken at their word.
    """
    kinds = addable_nodes()
    if kinds and not any(spec.shape.label_selectors):  # the labels of what is to come are not known
        count_trials(spec, [*nodes, *kinds], limit=1)
    return Room(slots=spec.max_concurrent_trials or 1, nodes=max(1, len(nodes)), memory_bytes=0)


def addable_nodes() -> list[Node]:
    """Nodes that the autoscaler could add, as far as the cluster's configuration says."""
    found: list[Node] = []
    for kind in node_kinds():
        # A strategy may need several; more than there are bundles do not help.
        count = MAX_OF_A_KIND if kind.max_count is None else min(kind.max_count, MAX_OF_A_KIND)
        found += [Node(name=kind.name, total=kind.resources, labels={})] * count
    return found


def state_of_node(node_id: str, text: str) -> NodeState:
    """The state of an ended process's node; `text` is what Ray said, and helps where `node_id` is empty."""
    if "node has died" in text or "node was terminated" in text:
        return "dead"
    known = {node["NodeID"]: node["Alive"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
    if any(not is_alive and (name == node_id or name in text) for name, is_alive in known.items()):
        return "dead"
    return "draining" if node_id and node_id in draining_nodes() else "alive"


def avoiding(shape: Shape, excluded: Collection[str]) -> list[dict[str, str]] | None:
    """The label selector of each bundle of this shape that keeps them off excluded nodes."""
    off = {NODE_LABEL: f"!in({','.join(sorted(excluded))})"} if excluded else {}
    selectors = [{**selector, **off} for selector in shape.label_selectors]
    return selectors if any(selectors) else None
