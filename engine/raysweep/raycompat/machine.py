"""The resources that an embedded Ray will find on this machine."""

from __future__ import annotations

from ray._private.accelerators import get_accelerator_manager_for_resource
from ray._private.utils import get_num_cpus


def count_cpus() -> float:
    """The number of CPUs that Ray offers by default: cores, or what the container may use of them."""
    return float(get_num_cpus())


def count_gpus() -> float:
    """The number of GPUs that Ray finds."""
    manager = get_accelerator_manager_for_resource("GPU")
    return float(manager.get_current_node_num_accelerators()) if manager else 0.0
