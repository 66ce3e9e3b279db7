"""Specs of trainings, and the actors that a test leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.insides import actor_states

ray = pytest.importorskip("ray")


def spec_maker(folder: Path) -> Callable[..., rs.TrainSpec]:
    """Makes specs of trainings that are stored in this folder."""

    def make(trainable: Any = "examples.quick:steps", **fields: Any) -> rs.TrainSpec:
        fields = {"name": "t", "storage_path": str(folder / "runs"), "max_failures": 0, **fields}
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
