"""What Ray finds on this machine."""

from __future__ import annotations

import os

import pytest
import ray._private.accelerators.nvidia_gpu as gpus

from raysweep.raycompat.machine import count_cpus, count_gpus


def test_cpus_are_those_that_may_be_used() -> None:
    assert 1 <= count_cpus() <= (os.cpu_count() or 1)


def test_gpus_are_those_that_ray_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = gpus.NvidiaGPUAcceleratorManager
    monkeypatch.setattr(manager, "get_current_node_num_accelerators", staticmethod(lambda: 3))
    monkeypatch.setattr(
        "raysweep.raycompat.machine.get_accelerator_manager_for_resource",
        {"GPU": manager}.get,
    )
    assert count_gpus() == 3.0
    monkeypatch.setattr("raysweep.raycompat.machine.get_accelerator_manager_for_resource", {}.get)
    assert count_gpus() == 0.0
