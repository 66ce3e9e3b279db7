"""What is kept of whole sweeps: by any metric, of the best trials, within a budget."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from tests.engine.conftest import INLINE
from tests.sampling import first_of

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]
ACCURACIES = (0.2, 0.9, 0.4, 0.8, 0.1)


def train(config: dict[str, Any]) -> None:
    """Five steps; the loss falls, the accuracy does as it likes."""
    for step, accuracy in enumerate(ACCURACIES):
        metrics = {"loss": config["x"] + 1 / (1 + step), "accuracy": accuracy}
        if config["in_background"]:
            with rs.new_checkpoint() as folder:
                (folder / "at.json").write_text(json.dumps(step))
                rs.report(metrics, checkpoint=folder)
        else:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "at.json").write_text(json.dumps(step))
                rs.report(metrics, checkpoint=folder)


def steps_kept(outcome: rs.SweepOutcome, trial: str, tmp_path: Path) -> list[int]:
    store, _, sweep_id = outcome.uri.rpartition("/")
    checkpoints = CheckpointStore(open_store(store), sweep_id)
    steps = []
    for number in checkpoints.numbers(trial):
        target = tmp_path / sweep_id / trial / str(number)
        checkpoints.restore(checkpoints.uri(trial, number), target)
        steps.append(json.loads((target / "at.json").read_text()))
    return steps


def check(outcome: rs.SweepOutcome) -> None:
    store, _, sweep_id = outcome.uri.rpartition("/")
    report = verify_sweep(SweepFolder(open_store(store), sweep_id))
    assert report.is_sound
    assert not report.orphans


@pytest.mark.parametrize("in_background", first_of([True, False]))
def test_the_best_by_another_metric_are_kept_and_each_third(
    in_background: bool, run: Run, tmp_path: Path
) -> None:
    policy = {"keep_best": {"metric": "accuracy", "mode": "max", "num": 2}, "every_n": 3}
    outcome = run(train, {"x": 1.0, "in_background": in_background}, checkpoint=policy, **INLINE)
    assert outcome.counts == {"completed": 1}
    assert steps_kept(outcome, "00000", tmp_path) == [1, 2, 3, 4]
    check(outcome)


def test_of_the_trials_that_are_done_the_two_best_keep_checkpoints(run: Run, tmp_path: Path) -> None:
    space = {"x": {"grid_search": [3.0, 1.0, 4.0, 2.0]}, "in_background": False}
    outcome = run(train, space, checkpoint={"keep_top_k": 2}, search="grid", num_samples=1, **INLINE)
    kept = {trial.config["x"]: steps_kept(outcome, trial.trial_id, tmp_path) for trial in outcome.trials}
    assert kept == {1.0: [4], 2.0: [4], 3.0: [], 4.0: []}
    assert {trial.config["x"]: trial.checkpoint_uri is not None for trial in outcome.trials} == {
        x: bool(steps) for x, steps in kept.items()
    }
    check(outcome)


def test_a_sweep_that_ends_takes_what_is_over_the_budget_from_the_one_before(
    ray_cluster: RayConnection, make_spec: Callable[..., rs.SweepSpec], tmp_path: Path
) -> None:
    spec = make_spec(train, {"x": 1.0, "in_background": False}, **INLINE)
    before = rs.run_sweep(spec, key="first")
    assert before.best is not None
    assert before.best.checkpoint_uri is not None
    after = rs.run_sweep(spec.replace(checkpoint={"storage_budget": 1}), key="second")
    assert steps_kept(before, "00000", tmp_path) == []
    assert after.best is not None
    assert steps_kept(after, "00000", tmp_path) == [4], "what is done next begins from it"
    again = rs.run_sweep(spec, key="first")
    assert again.best is not None
    assert again.best.checkpoint_uri is None
    assert again.best.metrics == before.best.metrics
    check(before)
    check(after)
