"""Sweeps without a metric, among them the first example of Ray Tune's own guide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cli import main

pytest.importorskip("ray.tune")
from ray import tune


def train_model(config: dict[str, Any]) -> dict[str, Any]:
    """As Ray's guide "Running Basic Experiments" has it, where `...` stands for other data."""
    score = len(config["model_id"])
    return {"score": score, "other_data": ...}


@pytest.mark.slow
def test_a_hundred_models_run_as_in_rays_guide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tuner, unchanged: a grid of 100 ids, no metric, `results[i]`."""
    trainable_with_resources = tune.with_resources(train_model, {"cpu": 0.25})
    tuner = tune.Tuner(
        trainable_with_resources,
        param_space={"model_id": tune.grid_search([f"model_{number}" for number in range(100)])},
    )
    spec = rs.from_tuner(tuner, name="models", storage_path=str(tmp_path), isolation="worker")
    results = rs.run_sweep(spec, address="local", num_cpus=2)
    assert (results.status, len(results), results.counts["completed"]) == ("completed", 100, 100)
    assert [result.metrics["score"] for result in results.trials] == [7] * 10 + [8] * 90
    assert results[7].config == {"model_id": "model_7"}
    assert results[7].metrics["other_data"] == "Ellipsis"
    capsys.readouterr()
    assert main(["best", results.uri]) == 1
    assert "has no metric: its trials are not ranked" in capsys.readouterr().err
    for command in ("status", "trials"):
        assert main([command, results.uri]) == 0
    shown = capsys.readouterr().out
    assert "model_99" in shown
    assert "score=8" in shown
    assert len(results.to_dataframe()) == 100


def returns_a_value(config: dict[str, Any]) -> Any:
    return [config["x"], {"nested": None}]


def test_what_a_trial_returns_is_its_result(tmp_path: Path) -> None:
    spec = rs.SweepSpec(
        name="values",
        trainable=returns_a_value,
        param_space={"x": {"grid_search": [1, 2]}},
        storage_path=str(tmp_path),
    )
    outcome = rs.run_sweep(spec, address="here", num_cpus=1)
    assert [trial.metrics["result"] for trial in outcome.trials] == [
        [1, {"nested": None}],
        [2, {"nested": None}],
    ]


def test_a_command_completes_with_exit_code_0_alone(tmp_path: Path) -> None:
    spec = rs.SweepSpec(
        name="shell",
        command=["sh", "-c", "exit $1", "sh", "{code}"],
        param_space={"code": {"grid_search": [0, 3, 0]}},
        failure={"max_failures": 0, "breaker_trials": 0},
        storage_path=str(tmp_path),
    )
    outcome = rs.run_sweep(spec, address="here", num_cpus=1)
    assert [trial.state for trial in outcome.trials] == ["completed", "failed", "completed"]
    assert outcome.status == "completed"
