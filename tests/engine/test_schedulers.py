"""Schedulers that pause and exploit, on a real Ray: the examples as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from examples.functions import curve
from raysweep.cluster.ray.connection import RayConnection
from raysweep.training.from_outcome import train_spec_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[2] / "examples/schedulers"


def run(name: str, tmp_path: Path) -> rs.SweepOutcome:
    spec = rs.SweepSpec.from_file(EXAMPLES / f"{name}.yaml")
    return rs.run_sweep(spec.replace(storage_path=str(tmp_path)))


def test_hyperband_pauses_what_goes_on_from_its_checkpoint(
    ray_cluster: RayConnection, tmp_path: Path
) -> None:
    outcome = run("hyperband", tmp_path)
    assert outcome.status == "completed"
    # Of the brackets of 9, 5 and 3 trials, 1, 2 and 3 come to the end.
    assert outcome.counts == {"completed": 6, "stopped": 11}
    for trial in outcome.trials:
        done = int(trial.metrics["training_iteration"])
        assert trial.metrics["loss"] == pytest.approx(curve(trial.config, done)["loss"])
        # What was paused did not begin anew.
        assert trial.reports == done
    ends = [attempt.end for trial in outcome.trials for attempt in trial.attempts]
    assert ends.count("paused") >= 12


@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")
def test_pbt_goes_on_from_the_donors_checkpoint_with_another_config(
    ray_cluster: RayConnection, tmp_path: Path
) -> None:
    outcome = run("pbt", tmp_path)
    assert outcome.status == "completed"
    assert outcome.counts == {"completed": 8}
    attempts = [attempt for trial in outcome.trials for attempt in trial.attempts]
    donors = [attempt.donor for attempt in attempts if attempt.donor is not None]
    # Of eight, two are replaced after 2, 4, 6 and 8 epochs.
    assert len(donors) == 8
    assert not [note for note in outcome.notes if "has no checkpoint" in note]
    for trial in outcome.trials:
        assert trial.metrics["training_iteration"] == 9
        assert trial.metrics["loss"] == pytest.approx(curve(trial.config, 9)["loss"])
    _check_training(outcome, tmp_path)


def _check_training(outcome: rs.SweepOutcome, tmp_path: Path) -> None:
    """The example of a training repeats the configs of the best trial, epoch by epoch."""
    path = EXAMPLES.parent / "population_train.yaml"
    assert f"raysweep train examples/{path.name}" in path.read_text()
    spec = train_spec_for(rs.TrainSpec.from_file(path).replace(storage_path=str(tmp_path)), outcome)
    assert len(spec.schedule) > 1
    trained = rs.run_training(spec, key="k")
    starts = {each.start: each.config for each in spec.schedule}
    configs = [starts[max(start for start in starts if start < epoch)] for epoch in range(1, 10)]
    assert [report.metrics["loss"] for report in trained.history] == [
        pytest.approx(curve(config, epoch)["loss"]) for epoch, config in enumerate(configs, 1)
    ]


def shared(config: dict[str, Any]) -> None:
    """The longer trial reports its CPUs, and continues from its checkpoint."""
    import time

    done = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            done = int((folder / "done").read_text())
    for step in range(done + 1, config["steps"] + 1):
        with rs.new_checkpoint() as folder:
            (folder / "done").write_text(str(step))
            rs.report({"loss": 1 / step, "cpus": rs.get_context().resources["CPU"]}, checkpoint=folder)
        time.sleep(0.2)


@pytest.mark.slow
def test_the_trial_that_is_left_goes_on_with_both_cpus(ray_cluster: RayConnection, tmp_path: Path) -> None:
    outcome = rs.run_sweep(
        {
            "name": "shared",
            "trainable": shared,
            "metric": "loss",
            "mode": "min",
            "param_space": {"steps": {"grid_search": [3, 12]}, "cpus": 1},
            "resources": {"cpu": 1, "by_config": {"cpu": "cpus"}},
            "scheduler": {"resource_changing": {"param": "cpus", "total": 2, "interval": 2}},
            "storage_path": str(tmp_path),
        }
    )
    assert outcome.counts == {"completed": 2}
    longer = outcome.trials[1]
    assert longer.metrics["cpus"] == 2
    assert longer.config["cpus"] == 2
    assert longer.metrics["training_iteration"] == 12
    assert longer.reports <= 13, "it continued from its checkpoint: the newest, or the one before"
    assert [attempt.end for attempt in longer.attempts] == ["exploited", "completed"]


@pytest.mark.slow
@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")
def test_a_training_with_the_schedule_of_a_populations_best_trial_learns_exactly_what_that_did(
    ray_cluster: RayConnection, tmp_path: Path
) -> None:
    """Of a trial whose donors were replaced themselves, if the population has one."""
    outcome = rs.run_sweep(
        {
            "name": "population",
            "trainable": "tests.engine.populations:descend",
            "param_space": {"rate": {"uniform": [0.01, 0.3]}, "steps": 12},
            "metric": "loss",
            "mode": "min",
            "num_samples": 4,
            "seed": 3,
            "scheduler": {"pbt": {"perturbation_interval": 2, "quantile_fraction": 0.5, "synch": True}},
            "storage_path": str(tmp_path),
        },
        key="k",
    )
    assert outcome.counts == {"completed": 4}
    trial = max(outcome.trials, key=lambda each: len(each.schedule))
    assert len(trial.schedule) > 2, "it was replaced several times, or its donors were"
    assert trial.schedule[-1].config == trial.config
    spec = rs.TrainSpec(trainable="tests.engine.populations:descend", storage_path=str(tmp_path))
    trained = rs.run_training(train_spec_for(spec, outcome.model_copy(update={"best": trial})), key="k")
    assert trained.metrics["step"] == 12
    assert trained.metrics["x"] == trial.metrics["x"], "to the last bit"
    assert [each.metrics["step"] for each in trained.history] == list(range(1, 13))
