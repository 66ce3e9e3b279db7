"""Programs that call Ray Tune, run in the stand-in without a change: results in Tune's own classes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune import ExperimentAnalysis, ResultGrid, TuneError
from ray.tune.experiment import Trial

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.tune import run_program, running
from tests.engine.conftest import INLINE


@pytest.fixture
def stand_in(ray_cluster: RayConnection) -> Iterator[None]:
    with running(key="night", **INLINE):
        yield


def train(config: dict[str, Any]) -> None:
    if config["x"] < 0:
        raise ValueError(f"{config['x']} is below zero")
    for step in range(3):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            loss = config["x"] * (3 - step)
            tune.report(
                {"loss": loss, "eval": {"step": step}}, checkpoint=tune.Checkpoint.from_directory(folder)
            )


def make(path: Path, xs: list[int], trainable: Any = train, **run: Any) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        param_space={"x": tune.grid_search(xs)},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="night", storage_path=str(path), **run),
    )


@pytest.mark.ray
def test_a_fit_returns_the_results_that_tune_would(stand_in: None, tmp_path: Path) -> None:
    grid = make(tmp_path, [2, 1, -1]).fit()
    assert isinstance(grid, ResultGrid)
    assert (len(grid), grid.num_errors, grid.num_terminated) == (3, 1, 2)
    best = grid.get_best_result()
    assert best.config == {"x": 1}
    assert grid.get_best_result("loss", "max", "avg").config == {"x": 2}
    assert (best.metrics["loss"], best.metrics["eval"]) == (1, {"step": 2})
    assert (best.metrics["training_iteration"], best.metrics["done"]) == (3, True)
    assert list(best.metrics_dataframe["eval/step"]) == [0, 1, 2]
    assert set(grid.get_dataframe()["config/x"]) == {1, 2}
    assert Path(best.path, "result.json").is_file()
    assert Path(best.path).parent == tmp_path / "night"


@pytest.mark.ray
def test_an_error_is_of_the_class_that_was_raised(stand_in: None, tmp_path: Path) -> None:
    (error,) = make(tmp_path, [1, -1]).fit().errors
    assert isinstance(error, ValueError)
    assert "-1 is below zero" in str(error)


@pytest.mark.ray
def test_a_checkpoint_is_fetched_when_its_path_is_read(stand_in: None, tmp_path: Path) -> None:
    result = make(tmp_path, [1]).fit()[0]
    assert not list(Path(result.path).glob("checkpoint_*"))
    assert Path(result.checkpoint.path, "step").read_text() == "2"
    with result.checkpoint.as_directory() as folder:
        assert os.listdir(folder) == ["step"]
    (checkpoint, metrics), *_ = result.best_checkpoints
    assert metrics["eval"] == {"step": int(Path(checkpoint.path, "step").read_text())}


@pytest.mark.ray
def test_a_run_returns_an_analysis_and_raises_as_tunes_does(stand_in: None, tmp_path: Path) -> None:
    def run(xs: list[int], **said: Any) -> ExperimentAnalysis:
        place = {"storage_path": str(tmp_path), "name": said.pop("name")}
        return tune.run(train, config={"x": tune.grid_search(xs)}, metric="loss", mode="min", **place, **said)

    analysis = run([3, 2], name="all-well")
    assert isinstance(analysis, ExperimentAnalysis)
    assert analysis.best_config == {"x": 2}
    assert all(isinstance(trial, Trial) for trial in analysis.trials)
    with pytest.raises(TuneError, match="did not complete"):
        run([1, -1], name="one-fails")
    assert len(run([1, -1], name="accepted", raise_on_failed_trial=False).trials) == 2


@pytest.mark.ray
def test_the_same_key_hands_back_what_ended(ray_cluster: RayConnection, tmp_path: Path) -> None:
    lines = tmp_path / "lines"

    def counted(config: dict[str, Any]) -> None:
        with lines.open("a") as file:
            file.write(f"{config['x']}\n")
        tune.report({"loss": config["x"]})

    for _ in range(2):
        with running(key="night", **INLINE):
            assert make(tmp_path, [1, 2], counted).fit().get_best_result().config == {"x": 1}
            assert make(tmp_path, [1, 2], counted).fit().get_best_result().config == {"x": 1}
    assert len(lines.read_text().splitlines()) == 4  # two fits of two trials, each once
    assert len(list(rs.sweeps(str(tmp_path)))) == 2


@pytest.mark.ray
def test_a_restored_tuner_runs_failed_trials_again(stand_in: None, tmp_path: Path) -> None:
    fixed = tmp_path / "fixed"

    def flaky(config: dict[str, Any]) -> None:
        if config["x"] == 2 and not fixed.exists():
            raise OSError("not yet")
        tune.report({"loss": config["x"]})

    assert make(tmp_path, [1, 2], flaky).fit().num_errors == 1
    folder = str(tmp_path / "night")
    assert tune.Tuner.can_restore(folder)
    assert tune.Tuner.restore(folder, flaky).fit().num_errors == 1
    fixed.touch()
    assert tune.Tuner.restore(folder, flaky, resume_errored=True).fit().num_errors == 0
    with pytest.raises(rs.SpecError, match="resume_errored"):
        tune.Tuner.restore(folder, flaky, restart_errored=True).fit()


@pytest.mark.ray
def test_objects_of_the_space_come_back_in_configs(stand_in: None, tmp_path: Path) -> None:
    def sized(config: dict[str, Any]) -> None:
        tune.report({"loss": config["size"](config["x"])})

    tuner = tune.Tuner(
        sized,
        param_space={"x": "abc", "size": tune.grid_search([len, str.__len__])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="objects", storage_path=str(tmp_path)),
    )
    assert [result.config["size"] for result in tuner.fit()] == [len, str.__len__]


@pytest.mark.ray
def test_after_the_block_the_calls_are_tunes_again(ray_cluster: RayConnection) -> None:
    from ray.tune.impl.tuner_internal import TunerInternal

    before = (tune.run, TunerInternal._fit_internal, TunerInternal._restore_from_path_or_uri)
    with running(key="night"):
        assert tune.run is not before[0]
    assert (tune.run, TunerInternal._fit_internal, TunerInternal._restore_from_path_or_uri) == before


_SCRIPT = """
import sys
from ray import tune

def train(config):
    tune.report({"loss": config["x"] * config["factor"]})

if __name__ == "__main__":
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([1, 2]), "factor": int(sys.argv[1])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=sys.argv[2]),
    )
    with open(sys.argv[2] + "/best", "w") as file:
        file.write(str(tuner.fit().get_best_result().metrics["loss"]))
"""


@pytest.mark.ray
def test_a_script_runs_as_it_is(ray_cluster: RayConnection, tmp_path: Path) -> None:
    script = tmp_path / "night.py"
    script.write_text(_SCRIPT)
    run_program(script, ["5", str(tmp_path)], storage_path=tmp_path / "sweeps", **INLINE)
    assert (tmp_path / "best").read_text() == "5"
    (sweep,) = rs.sweeps(str(tmp_path / "sweeps"))
    assert sweep.run_id.startswith("train-")


def test_a_script_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rs.SpecError, match="is not a file; give the path of a Python program"):
        run_program(tmp_path / "none.py")


def test_the_room_is_had_without_ray() -> None:
    code = "import raysweep, sys; raysweep.tune.running; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.ray
def test_the_command_runs_a_script_in_processes_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "night.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-m", "raysweep.cli", "sweep", "--tune", str(script)]
    subprocess.run(
        [*command, "--key", "k", "--num-cpus", "1", "--", "7", str(tmp_path)], check=True, cwd=tmp_path
    )
    assert (tmp_path / "best").read_text() == "7"
    assert rs.load("train@k", str(tmp_path)).counts.total == 2
