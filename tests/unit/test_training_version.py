"""A Ray that is too old for training is refused by name, before any of its private parts is missed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import raysweep as rs
from raysweep.errors import SpecError
from raysweep.tested import TRAINS_SINCE, check_training
from tests.unit.raycompat.moved import ray_version

PROBLEM = r"ray: training with Ray Train requires Ray 2\.56 or newer \(got 2\.5\d\.\d\); upgrade Ray"


def train(steps: object) -> None:
    """No worker runs it."""


def test_an_old_ray_is_refused_with_the_fix() -> None:
    with pytest.raises(SpecError, match=PROBLEM):
        check_training("2.54.1")
    for version in ("2.56.0", "2.100.0", "3.0.0.dev0", "unknown"):
        check_training(version)


def test_a_training_step_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ray_version() >= TRAINS_SINCE:
        monkeypatch.setattr("raysweep.tested.installed", lambda package: "2.54.1")
    spec = rs.TrainSpec(name="old", trainable=train, storage_path=str(tmp_path / "runs"))
    with pytest.raises(SpecError, match=PROBLEM):
        rs.run_training(spec, key="k")
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(ray_version() < TRAINS_SINCE, reason="Ray is too old, and refused")
@pytest.mark.parametrize(
    "module", ["train", "elastic", "in_trial.trialrun", "in_trial.validation", "in_trial.trialdata"]
)
def test_a_newer_ray_has_all_parts(module: str) -> None:
    assert importlib.import_module(f"raysweep.raycompat.{module}")
