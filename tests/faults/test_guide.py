"""The guide's example with real processes does what it says."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from raysweep.cluster.ray.connection import RayConnection
from tests.unit.testing.guide import example as example  # a fixture

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.slow
def test_the_example_with_a_killed_worker(
    ray_cluster: RayConnection,
    example: ModuleType,
    tmp_path: Path,
) -> None:
    example.test_a_killed_worker_costs_one_step(tmp_path)
