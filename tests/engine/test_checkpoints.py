"""Checkpoints through whole sweeps: kept as the policy says, restored after a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.events import CheckpointCommitted
from raysweep.storage.checkpoints import restore_uri

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]
Events = Callable[..., list[Any]]


def steps_kept(storage: Path, tmp_path: Path, trial: str) -> list[int]:
    """The steps of the checkpoints that lie in the store, oldest first."""
    (folder,) = storage.glob(f"*/checkpoints/{trial}")
    steps = []
    for manifest in sorted(folder.glob("*.json"), key=lambda path: int(path.stem)):
        target = tmp_path / "restored" / trial / manifest.stem
        restore_uri(str(manifest.with_suffix("")), target)
        steps.append(json.loads((target / "at.json").read_text())["step"])
    manifests = {path.stem for path in folder.glob("*.json")}
    assert {path.name.partition("-")[0] for path in folder.iterdir() if path.is_dir()} == manifests
    return steps


@pytest.mark.parametrize(
    ("keep", "mode", "expected"),
    [
        ({"keep_last": 1, "keep_best": True}, "min", [5]),
        ({"keep_last": 1, "keep_best": True}, "max", [1, 5]),
        ({"keep_last": 3, "keep_best": False}, "max", [3, 4, 5]),
    ],
)
def test_the_last_and_the_best_are_kept(
    keep: dict[str, Any], mode: str, expected: list[int], run: Run, storage: Path, tmp_path: Path
) -> None:
    outcome = run("steps", checkpoint=keep, mode=mode)
    (trial,) = outcome.trials
    assert trial.state == "completed"
    assert trial.checkpoint_uri is not None
    restore_uri(trial.checkpoint_uri, tmp_path / "last")
    assert json.loads((tmp_path / "last" / "at.json").read_text()) == {"step": 5}
    assert steps_kept(storage, tmp_path, trial.trial_id) == expected


def test_every_checkpoint_belongs_to_its_report(run: Run, events: Events) -> None:
    outcome = run("steps", {"steps": 4}, num_samples=2)
    assert outcome.counts == {"completed": 2}
    for number in range(2):
        committed = [event for event in events(CheckpointCommitted) if event.trial == number]
        assert [event.report for event in committed] == [0, 1, 2, 3]
        assert [event.number for event in committed] == [0, 1, 2, 3]


def test_a_trial_that_dies_twice_goes_on_from_where_it_was(run: Run, storage: Path, tmp_path: Path) -> None:
    space = {"dies_at": 2, "how": "sigkill", "deaths": 1}
    outcome = run("steps", space, isolation="process", num_samples=2, max_concurrent_trials=1)
    for trial in outcome.trials:
        assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"]
        assert trial.reports == 5
        assert steps_kept(storage, tmp_path, trial.trial_id) == [5]


def test_a_directory_that_is_none_is_the_trials_error(run: Run, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        rs.report({"loss": 1.0}, checkpoint="/nowhere/at/all")

    (trial,) = run(train, failure={"max_failures": 0}).trials
    assert trial.error is not None
    assert "takes a directory; '/nowhere/at/all' is none" in trial.error.message
