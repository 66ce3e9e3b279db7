"""Resources by config on a real Ray: what each trial's worker is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def says_what_it_has(config: dict[str, Any]) -> dict[str, Any]:
    import os

    context = rs.get_context()
    return {
        "loss": 1.0,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "resources": dict(context.resources),
        "world_size": context.world_size,
    }


@pytest.mark.parametrize("isolation", ["worker", "process", "actor"])
def test_threads_follow_the_cpus_of_each_config(
    run: Callable[..., rs.SweepOutcome], isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    outcome = run(
        says_what_it_has,
        {"n": {"grid_search": [1, 2, 1, 2, 1]}},
        isolation=isolation,
        resources={"cpu": 1, "by_config": {"cpu": "n"}},
    )
    assert outcome.counts == {"completed": 5}
    for trial in outcome.trials:
        assert trial.metrics["threads"] == str(trial.config["n"])
        assert trial.metrics["resources"]["CPU"] == trial.config["n"]


@pytest.mark.parametrize("isolation", ["process", pytest.param("worker", marks=pytest.mark.slow)])
def test_a_gang_has_as_many_members_as_its_config_says(
    run: Callable[..., rs.SweepOutcome], isolation: str
) -> None:
    outcome = run(
        says_what_it_has,
        {"workers": {"grid_search": [2, 1, 2, 1]}},
        isolation=isolation,
        scaling={"num_workers": 1, "by_config": {"num_workers": "workers"}},
    )
    assert outcome.counts == {"completed": 4}
    assert [trial.metrics["world_size"] for trial in outcome.trials] == [2, 1, 2, 1]


def test_what_no_node_has_fails_that_trial_when_the_others_are_done(
    run: Callable[..., rs.SweepOutcome],
) -> None:
    outcome = run(
        says_what_it_has,
        {"n": {"grid_search": [1, 64, 2]}},
        resources={"cpu": 1, "by_config": {"cpu": "n"}},
        failure={"placement_timeout_s": 1.0},
    )
    assert [trial.state for trial in outcome.trials] == ["completed", "failed", "completed"]
    error = outcome.trials[1].error
    assert error is not None
    assert "is large by its config (resources.by_config): it needs cpu=64, for which no node" in error.message


@pytest.mark.slow
def test_the_example_runs(ray_cluster: object, storage: Path) -> None:
    spec = yaml.safe_load((ROOT / "examples/memory_by_config.yaml").read_text())
    outcome = rs.run_sweep({**spec, "storage_path": str(storage)}, key="k")
    assert outcome.counts == {"completed": 16}
    assert all(trial.metrics["held_mb"] == trial.config["width"] for trial in outcome.trials)
