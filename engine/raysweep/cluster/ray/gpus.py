"""Resolves `gpu_memory` to a fraction of a GPU of this cluster.

Ray knows how many GPUs a node has and shares each by fractions. The driver of a GPU knows its memory.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import ray

from raysweep.cluster.ray.nodes import NODE_LABEL, live_nodes
from raysweep.cluster.ray.preflight import Node
from raysweep.documents.sizes import to_bytes
from raysweep.errors import InfeasibleResourcesError
from raysweep.raycompat.labels import has_labels
from raysweep.specs import SweepSpec

LABEL: Final = "gpu-memory"
"""The label of a node that says how much memory each of its GPUs has, in place of its driver: 24GiB."""
_FIELD: Final = "resources.gpu_memory"
# Ray counts GPUs in ten-thousandths: of more trials on one, an equal part would have room for another.
_PARTS: Final = 10_000
_MOST: Final = 99
_LOOK_S: Final = 60.0
_GIB: Final = 2**30


def with_gpu_part(spec: SweepSpec) -> SweepSpec:
    """The spec with the part of a GPU that its `gpu_memory` is on the connected cluster; inline it has none.

    Raises:
        InfeasibleResourcesError: A GPU of a node that may be used has less, or it cannot be found out.
    """
    resources = spec.resources
    if resources.gpu_memory is None or spec.is_inline:
        return spec
    nodes = [
        node
        for node in live_nodes()
        if node.total.get("GPU") and has_labels(node.labels, resources.label_selector)
    ]
    part = find_part(resources.gpu_memory, gpu_sizes(nodes))
    return spec.replace(resources=resources.with_gpu_part(part))


def find_part(wanted: int, sizes: Sequence[tuple[str, int]]) -> float:
    """The part with which as many trials share a GPU as its memory holds `wanted` bytes.

    That of the smallest GPU, as Ray gives a trial the same part on whatever node. `sizes`: of each node the
    name, which several may have, and the bytes.
    """
    if not sizes:
        fix = "give gpu, the part of a GPU, or add a node with GPUs"
        raise InfeasibleResourcesError(_FIELD, "no live node has GPUs whose memory could be looked up", fix)
    name, size = min(sizes, key=lambda each: each[1])
    if size < wanted:
        fix = f"ask for at most {_show(size)}"
        if any(other >= wanted for _, other in sizes):
            fix += ", or keep to other nodes with resources.label_selector"
        raise InfeasibleResourcesError(
            _FIELD, f"one trial asks for {_show(wanted)}; a GPU of {name} has {_show(size)}", fix
        )
    trials = min(size // wanted, _MOST)
    return _PARTS // trials / _PARTS


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
        raise InfeasibleResourcesError(_FIELD, problem, "write it such as 24GiB")
    return size


def _look_on(node: Node) -> Any:
    remote: Any = ray.remote(num_cpus=0, max_retries=0, label_selector={NODE_LABEL: node.node_id})(_look)
    return remote.remote()


def _look() -> int | str:
    """The memory of this node's smallest GPU, in bytes; or what went wrong."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_S / 2, check=True).stdout
        return min(int(line) for line in said.split()) * 2**20
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"


def _answer(node: Node, answer: Any) -> int:
    try:
        found: int | str = ray.get(answer, timeout=_LOOK_S)
    except ray.exceptions.RayError as error:
        found = str(error)
    if isinstance(found, int):
        return found
    fix = f"give gpu, the part of a GPU, or start the node with the label {LABEL}, such as {LABEL}=24GiB"
    raise InfeasibleResourcesError(
        _FIELD, f"how much memory the GPUs of {node.name} have is not known: nvidia-smi: {found}", fix
    )


def _show(size: int) -> str:
    return f"{size / _GIB:.4g} GiB"
