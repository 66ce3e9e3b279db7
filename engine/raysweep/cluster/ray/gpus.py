"""Resolves `gpu_memory` to a fraction of a GPU of this cluster.

Ray knows how many GPUs a node has and shares each by fractions. The driver of a GPU knows its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import ray

from raysweep.cluster.gpu_shares import FIELD, Share, find_share, smallest_here
from raysweep.cluster.ray.nodes import NODE_LABEL, live_nodes
from raysweep.cluster.ray.preflight import Node
from raysweep.documents.sizes import to_bytes
from raysweep.errors import InfeasibleResourcesError
from raysweep.raycompat.labels import has_labels
from raysweep.specs import SweepSpec
from raysweep.worker.host.nvidia import DriverError

LABEL: Final = "gpu-memory"
"""The label of a node that says how much memory each of its GPUs has, in place of its driver: 24GiB."""
_LOOK_S: Final = 60.0


def share_gpus(spec: SweepSpec) -> tuple[SweepSpec, Share | None]:
    """The spec with the part of a GPU that its `gpu_memory` is on the connected cluster, and how that came.

    As it is, and None, without `gpu_memory`, or inline, where a trial holds nothing of the cluster.

    Raises:
        InfeasibleResourcesError: A GPU of a node that may be used has less, or it cannot be found out.
    """
    resources = spec.resources
    size_bytes = resources.gpu_memory_bytes
    if size_bytes is None or spec.is_inline:
        return spec, None
    nodes = [
        node
        for node in live_nodes()
        if node.total.get("GPU") and has_labels(node.labels, resources.label_selector)
    ]
    share = find_share(size_bytes, gpu_sizes(nodes))
    return spec.replace(resources=resources.with_gpu_part(share.part)), share


def gpu_sizes(nodes: Sequence[Node]) -> list[tuple[str, int]]:
    """Each node's name, and the memory of its smallest GPU in bytes: as its label says, or else its driver.

    Raises:
        InfeasibleResourcesError: It cannot be found out.
    """
    asked = [None if LABEL in node.labels else _look_on(node) for node in nodes]
    return [
        (node.name, _said(node) if answer is None else _answer(node, answer))
        for node, answer in zip(nodes, asked, strict=True)
    ]


def _said(node: Node) -> int:
    size: Any = None
    with suppress(ValueError):
        size = to_bytes(node.labels[LABEL])
    if not isinstance(size, int) or size < 1:
        problem = f"the label {LABEL} of {node.name} is {node.labels[LABEL]!r}"
        raise InfeasibleResourcesError(FIELD, problem, "write it such as 24GiB")
    return size


def _look_on(node: Node) -> Any:
    remote: Any = ray.remote(num_cpus=0, max_retries=0, label_selector={NODE_LABEL: node.node_id})(_look)
    return remote.remote()


def _look() -> int | str:
    """The memory of this node's smallest GPU, in bytes; or what went wrong."""
    try:
        return smallest_here()
    except (DriverError, ValueError) as error:
        return str(error) or type(error).__name__


def _answer(node: Node, answer: Any) -> int:
    try:
        found: int | str = ray.get(answer, timeout=_LOOK_S)
    except ray.exceptions.RayError as error:
        found = str(error)
    if isinstance(found, int):
        return found
    fix = f"give gpu, the part of a GPU, or start the node with the label {LABEL}, such as {LABEL}=24GiB"
    raise InfeasibleResourcesError(
        FIELD, f"how much memory the GPUs of {node.name} have is not known: {found}", fix
    )
