"""Memory by config on a real Ray: what each trial's worker is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import raysweep as rs
from tests.engine.conftest import ROOT

pytestmark = pytest.mark.ray


def test_each_trial_has_what_its_config_needs(run: Callable[..., rs.SweepOutcome]) -> None:
    resources = {"cpu": 1, "memory": 100_000_000, "by_config": {"memory": "1e8 * x"}}
    space = {"x": {"grid_search": [1, 3, 1, 2]}}
    outcome = run("tests.engine.trainables:assigned_memory", space, resources=resources)
    assert outcome.counts == {"completed": 4}
    given = [(trial.config["x"], trial.metrics["memory_mb"]) for trial in outcome.trials]
    assert all(memory_mb >= 100 * x for x, memory_mb in given), given
    assert max(memory_mb for _, memory_mb in given) == 300


@pytest.mark.slow
def test_the_example_runs(ray_cluster: object, storage: Path) -> None:
    spec = yaml.safe_load((ROOT / "examples/memory_by_config.yaml").read_text())
    outcome = rs.run_sweep({**spec, "storage_path": str(storage)}, key="k")
    assert outcome.counts == {"completed": 16}
    assert all(trial.metrics["held_mb"] == trial.config["width"] for trial in outcome.trials)
