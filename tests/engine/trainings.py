"""Specs of trainings, the actors that a test leaves, and CPUs that are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.conftest import wait_for
from tests.insides import actor_states

ray = pytest.importorskip("ray")


def spec_maker(folder: Path) -> Callable[..., rs.TrainSpec]:
    """Makes specs of trainings that are stored in this folder."""

    def make(trainable: Any = "examples.quick:steps", **fields: Any) -> rs.TrainSpec:
        fields = {"name": "t", "storage_path": str(folder / "runs"), "failure": {"max_failures": 0}, **fields}
        return rs.TrainSpec(trainable=trainable, **fields)

    return make


_earlier = [0]


@pytest.fixture(autouse=True)
def actors_of_earlier_tests() -> None:
    """Ray Data's stay for as long as there is a cluster, where a test before has read a data set."""
    _earlier[0] = actor_states().count("ALIVE") if ray.is_initialized() else 0


def actors_alive() -> int:
    """Those that this test began."""
    return max(0, actor_states().count("ALIVE") - _earlier[0])


@contextmanager
def taken(cpus: int) -> Iterator[Callable[[], None]]:
    """So many CPUs are somebody else's, until what is yielded is called."""
    group = ray.util.placement_group([{"CPU": 1}] * cpus)
    assert group.wait(30)
    is_held = [True]

    def give_back() -> None:
        if is_held.pop():
            ray.util.remove_placement_group(group)
            wait_for(lambda: ray.available_resources().get("CPU", 0) >= cpus, timeout_s=30)

    try:
        yield give_back
    finally:
        if is_held:
            give_back()
