"""Trainables written for Ray Tune in real sweeps: in each isolation, killed, with large parameters."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray import tune

import raysweep as rs
from raysweep.core.vocabulary import events as ev
from tests.sampling import first_of
from tests.unit.worker.tune_trainables import Counter

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]
Run = Callable[..., rs.SweepOutcome]
ISOLATIONS = ["worker", *(pytest.param(other, marks=pytest.mark.slow) for other in ("process", "actor"))]
CLASS = "tests.unit.worker.tune_trainables:Counter"


def dies_once(config: dict[str, Any]) -> None:
    """Reports to Ray Tune, with a checkpoint each; is killed once at step 3."""
    import os
    import tempfile

    start = 0
    if (found := tune.get_checkpoint()) is not None:
        with found.as_directory() as folder:
            start = int(Path(folder, "step").read_text())
    for step in range(start + 1, 6):
        marker = Path(config["log"] + ".died")
        if step == 4 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), 9)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report({"loss": 1 / step, "eval": {"step": step}}, checkpoint=checkpoint)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_function_of_tune_resumes_after_sigkill(run: Run, isolation: str) -> None:
    (trial,) = run(dies_once, isolation=isolation).trials
    assert trial.state == "completed", trial.error
    assert trial.metrics["eval/step"] == 5
    assert trial.num_attempts == 2
    # However many checkpoints the kill took along, each step counts once.
    assert trial.metrics["training_iteration"] == 5


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("how", first_of(["raise", "kill"]))
def test_a_class_of_tune_resumes_after_its_death(
    run: Run, isolation: str, how: str, lines: Callable[[], Any]
) -> None:
    space = {"by": 1.0, "steps": 4, "dies_at": 4, "how": how}
    outcome = run(CLASS, space, metric="total", isolation=isolation, tune={"checkpoint_frequency": 1})
    (trial,) = outcome.trials
    assert trial.state == "completed", trial.error
    assert trial.metrics["total"] == 4.0
    assert trial.metrics["training_iteration"] == 4
    assert trial.num_attempts == 2


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_limit_ends_a_class_with_the_step_that_reaches_it(
    run: Run, isolation: str, lines: Callable[[], Any], events: Any
) -> None:
    outcome = run(
        CLASS,
        {"by": 1.0, "steps": 100},
        metric="total",
        isolation=isolation,
        num_samples=3,
        stop={"trial": {"training_iteration": 3}, "grace_s": 60},
        tune={"checkpoint_at_end": True},
    )
    assert [trial.metrics["total"] for trial in outcome.trials] == [3.0] * 3
    said = [line[0] for line in lines()]
    assert said.count("save@3") == 3
    assert said.count("cleanup") == 3
    assert not [word for word in said if word.startswith("save") and word != "save@3"]
    assert len(events(ev.CheckpointCommitted)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ("worker", ["setup", "reset", "reset"]),
        ("inline", ["setup", "reset", "reset", "cleanup"]),
        ("process", ["setup", "cleanup"] * 3),
        pytest.param("actor", ["setup", "cleanup"] * 3, marks=pytest.mark.slow),
    ],
)
def test_a_warm_worker_uses_an_instance_again_and_each_cleans_up_by_its_end(
    run: Run, lines: Callable[[], Any], isolation: str, expected: list[str]
) -> None:
    """Where each trial has a process of its own, there is no next one for the instance."""
    folders = set(Path(tempfile.gettempdir()).glob("raysweep-trial-*"))
    outcome = run(
        CLASS,
        {"by": 1.0, "steps": 2},
        metric="total",
        isolation=isolation,
        num_samples=3,
        max_concurrent_trials=1,
        tune={"reuse_actors": True},
    )
    assert [trial.metrics["total"] for trial in outcome.trials] == [2.0] * 3
    said = [line[0] for line in lines()]
    assert said[:3] == expected if isolation == "worker" else said == expected
    if isolation != "worker":  # which is told to end, and killed
        assert set(Path(tempfile.gettempdir()).glob("raysweep-trial-*")) <= folders


class Table:
    """Counts, in a file, how often it is pickled."""

    def __init__(self, log: str, size: int) -> None:
        self.log = log
        self.content = b"x" * size

    def __getstate__(self) -> dict[str, Any]:
        with Path(self.log).open("a") as file:
            file.write("pickled\n")
        return self.__dict__


def measures(config: dict[str, Any], table: Any = None, factor: float = 1.0) -> None:
    tune.report({"loss": len(table.content) * factor, "calls": len(table.content)})
    table.content += b"y"  # of this trial's own


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_parameters_go_through_the_object_store_once(
    run: Run, isolation: str, tmp_path: Path, lines: Callable[[], Any]
) -> None:
    log = tmp_path / "pickled"
    table = Table(str(log), 1_000_000)
    trainable = tune.with_parameters(measures, table=table, factor=2.0)
    outcome = run(trainable, isolation=isolation, num_samples=8, max_concurrent_trials=2)
    assert [trial.metrics["loss"] for trial in outcome.trials] == [2_000_000.0] * 8
    # Into the object store; and out of it into the fork server of each worker, whose children share it.
    assert len(log.read_text().split()) <= (1 if isolation != "process" else 3)


@pytest.mark.slow
def test_a_class_is_set_up_with_its_parameters(run: Run) -> None:
    class Doubles(tune.Trainable):
        def setup(self, config: dict[str, Any], factor: float = 0.0) -> None:
            self.factor = factor

        def step(self) -> dict[str, Any]:
            return {"loss": self.factor * self.iteration, "done": self.iteration == 2}

    (trial,) = run(tune.with_parameters(Doubles, factor=2.0)).trials
    assert trial.state == "completed", trial.error
    assert trial.metrics["loss"] == 4.0


@pytest.mark.slow
def test_with_resources_is_what_a_trial_gets(run: Run) -> None:
    outcome = run(tune.with_resources(Counter, {"cpu": 2}), {"by": 1.0, "steps": 1}, metric="total")
    assert outcome.counts == {"completed": 1}
    assert outcome.sweep_id


@pytest.mark.slow
def test_resources_that_a_named_function_asks_for_and_the_spec_does_not_give_are_said(run: Run) -> None:
    with pytest.raises(rs.SpecError, match=r"tune\.with_resources asks for .*'CPU': 2.*write the same into"):
        run("tests.engine.tune_wrapped:wants_two", num_samples=1)
    outcome = run("tests.engine.tune_wrapped:wants_two", num_samples=1, resources={"cpu": 2})
    assert outcome.counts == {"completed": 1}


def test_a_function_of_the_config_decides_what_a_trial_gets_beyond_with_resources(run: Run) -> None:
    def says_its_cpus(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0, "cpus": rs.get_context().resources["CPU"]})

    outcome = run(
        tune.with_resources(says_its_cpus, {"cpu": 1}),
        {"n": tune.grid_search([1, 2]), "cpus": tune.sample_from(lambda config: config["n"])},
        num_samples=1,
        resources={"cpu": 1, "by_config": {"cpu": "cpus"}},
    )
    assert [trial.metrics["cpus"] for trial in outcome.trials] == [1.0, 2.0]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["worker", "inline"])
def test_where_the_config_says_what_a_trial_gets_a_named_function_may_ask_for_something_else(
    run: Run, isolation: str
) -> None:
    outcome = run(
        "tests.engine.tune_wrapped:wants_two",
        {"cpus": 1},
        num_samples=1,
        isolation=isolation,
        max_concurrent_trials=1,
        resources={"cpu": 1, "by_config": {"cpu": "cpus"}},
    )
    assert outcome.counts == {"completed": 1}


TWICE = """
    import sys
    import raysweep as rs
    from ray import tune

    def train(config, data=None):
        tune.report({"loss": float(sum(data))})

    if __name__ == "__main__":
        wrapped = tune.with_parameters(train, data=[1, 2, 3])
        for key in ("a", "b"):
            outcome = rs.run_sweep(
                dict(name="p", trainable=wrapped, param_space={"x": 1}, metric="loss", mode="min",
                     isolation=sys.argv[2], storage_path=sys.argv[1]),
                key=key, address=sys.argv[3], num_cpus=1 if sys.argv[3] == "local" else None,
            )
            print(outcome.status, outcome.best.score)
        again = rs.run_sweep(
            dict(name="p", trainable=tune.with_parameters(train, data=[1, 2, 3]), param_space={"x": 1},
                 metric="loss", mode="min", isolation=sys.argv[2], storage_path=sys.argv[1]), key="a")
        print(again.status, again.best.score)
"""


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS[:2])
@pytest.mark.parametrize("where", ["cluster", "embedded"])
def test_parameters_outlive_the_connection_to_ray(
    tmp_path: Path, address: str, where: str, isolation: str
) -> None:
    """Each sweep has one of its own, embedded with a Ray: what it put into an object store goes with it."""
    script = tmp_path / "twice.py"
    script.write_text(textwrap.dedent(TWICE))
    done = subprocess.run(
        [
            *(sys.executable, str(script), str(tmp_path / "sweeps"), isolation),
            address if where == "cluster" else "local",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["completed 6.0"] * 3
