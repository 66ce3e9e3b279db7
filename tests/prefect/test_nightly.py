"""`python -m devtools.prefect.nightly` as a user meets it: a night, the same again, an interrupted one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.prefect.trainables import BEGIN, STEPS, descended, measured

ROOT = Path(__file__).parents[2]
NOISE = re.compile(r"Traceback|Warning|warning|\bERROR\b|\.cc:\d+|Deprecat", re.IGNORECASE)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


class Night:
    """One folder with a sweep of two slow trials at a time and a training step."""

    def __init__(self, folder: Path, steps: int, trials: int) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.log.touch()
        sweep: dict[str, Any] = {
            "name": "night",
            "trainable": "tests.prefect.trainables:slow_steps",
            "metric": "loss",
            "mode": "min",
            "search": "random",
            "num_samples": trials,
            "seed": 5,
            "param_space": {"x": {"uniform": [1, 2]}, "steps": steps, "log": str(self.log)},
        }
        (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep))
        self.train_with("train", workers=1)

    def train_with(self, trainable: str, workers: int, **config: Any) -> None:
        """The training step that follows the sweep."""
        train = {
            "name": "full",
            "trainable": f"tests.prefect.trainables:{trainable}",
            "scaling": {"num_workers": workers},
            "config": config,
        }
        (self.folder / "train.yaml").write_text(yaml.safe_dump(train))

    def start(self, key: str, *, is_trained: bool = True) -> subprocess.Popen[str]:
        """The night's process, the leader of a group of its own, as a terminal would have it."""
        command = [sys.executable, "-m", "devtools.prefect.nightly", "--key", key]
        for name in ("spec", "train", "storage") if is_trained else ("spec", "storage"):
            path = {"spec": "sweep.yaml", "train": "train.yaml", "storage": "out"}[name]
            command += [f"--{name}", str(self.folder / path)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment
            | {
                "HOME": str(self.folder / "home"),
                "COLUMNS": "200",
                # On a busy machine the raylet may take longer than the 30 s that Ray grants it.
                "RAY_raylet_start_wait_time_s": "120",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A test runner in the background ignores Ctrl-C, and its children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def starts(self) -> list[str]:
        """A line for each start of a trial: `00000 from 0`."""
        return self.log.read_text().splitlines()

    def outcome(self) -> dict[str, Any]:
        """The sweep's outcome.json."""
        (path,) = (self.folder / "out").glob("night-*/outcome.json")
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path


@pytest.mark.slow
@pytest.mark.servers
def test_a_night_and_the_same_night_again(home: Path) -> None:
    night = Night(home, steps=2, trials=3)
    process = night.start("2026-11-21")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert not NOISE.search(output), output
    outcome = night.outcome()
    best = outcome["best"]["config"]["x"]
    assert "3 of 3 trials ended: 3 completed" in output
    assert f"loss {outcome['best']['score']:.6g} (trial " in output
    assert f"x={best:.4g}" in output.split("full scale")[1], "the best config went into the training"
    assert f"raysweep best {outcome['sweep_id']} --storage" in output
    assert len(night.starts()) == 3

    again = night.start("2026-11-21")
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert "3 of 3 trials ended: 3 completed" in output
    assert len(night.starts()) == 3, "nothing runs twice"
    assert not NOISE.search(output), output


@pytest.mark.slow
@pytest.mark.servers
def test_a_night_of_commands_needs_no_trainable(home: Path) -> None:
    night = Night(home, steps=2, trials=2)
    emit = "raysweep emit loss=$2 --checkpoint $RAYSWEEP_OUTPUT_DIR"
    command = ["bash", "-c", emit, "emits", "--x", "{x}"]
    space = {"x": {"uniform": [1, 2]}}
    fields = {"metric": "loss", "mode": "min", "num_samples": 2, "seed": 5, "search": "random"}
    sweep = {"name": "night", "command": command, "param_space": space, **fields}
    train = {"name": "full", "command": command, "scaling": {"num_workers": 1}}
    (home / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    (home / "train.yaml").write_text(yaml.safe_dump(train))
    process = night.start("k")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert not NOISE.search(output), output
    (path,) = night.folder.glob("out/full-*/train_outcome.json")
    assert json.loads(path.read_text())["metrics"] == {"loss": night.outcome()["best"]["config"]["x"]}


@pytest.mark.servers
@pytest.mark.slow
def test_a_night_whose_training_is_killed_ends_as_the_undisturbed_one(home: Path) -> None:
    """SIGKILL of the driver in the middle of the training; then the same command."""
    night = Night(home, steps=2, trials=3)
    night.train_with("descend", 2, go=str(home / "go"), full_log=str(home / "full_log"))
    process = killed = night.start("k")
    try:
        wait_until_stored(night, 4, process)
        process.kill()
        process.wait()
        assert not list(night.folder.glob("out/full-*/train_outcome.json"))
        (home / "go").touch()
        process = night.start("k")
        output, _ = process.communicate()
    finally:
        process.kill()
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
        assert killed.stdout is not None
        killed.stdout.close()
    assert process.returncode == 0, output
    assert not NOISE.search(output), output
    assert_undisturbed(night)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_night_whose_own_ray_dies_starts_it_anew_and_ends_as_the_undisturbed_one(
    name: str, home: Path
) -> None:
    """Ray itself would end the process without a word; the step's retry continues on a new Ray."""
    night = Night(home, steps=2, trials=3)
    night.train_with("descend", 2, go=str(home / "go"), full_log=str(home / "full_log"))
    process = night.start("k")
    try:
        wait_until_stored(night, 4, process)
        (found,) = [each for each in psutil.Process(process.pid).children() if each.name() == name]
        found.kill()
        deadline = time.monotonic() + 240
        while (home / "full_log").read_text().count("from") < 2 and process.poll() is None:
            assert time.monotonic() < deadline, "the training is not continued"
            time.sleep(0.1)
        (home / "go").touch()
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert_undisturbed(night)


def wait_until_stored(night: Night, step: int, process: subprocess.Popen[str]) -> None:
    """Wait for the checkpoint of this step of the training."""
    deadline = time.monotonic() + 240
    while not has_stored(night, step):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"no checkpoint of the training's step {step}"
        time.sleep(0.1)


def assert_undisturbed(night: Night) -> None:
    """The training resumed after its fourth step, and ended as one that nothing interrupted."""
    home = night.folder
    assert len(night.starts()) == 3, "the sweep is not run again"
    begun = (home / "full_log").read_text().split()
    assert begun == ["from", "0", "from", "4"], "it resumes after the last step that was stored"
    (path,) = night.folder.glob("out/full-*/train_outcome.json")
    found, x = json.loads(path.read_text()), night.outcome()["best"]["config"]["x"]
    undisturbed = BEGIN
    for _ in range(STEPS):
        undisturbed = descended(undisturbed, x)
    assert found["resumed"]
    assert found["config"]["x"] == x
    assert found["metrics"].items() >= measured(undisturbed).items(), "bit for bit"


def has_stored(night: Night, step: int) -> bool:
    """Whether the training's list of checkpoints has the one of this step."""
    for path in night.folder.glob("out/full-*/checkpoint_manager_snapshot.json"):
        with suppress(OSError, ValueError):
            listed = json.loads(path.read_text())["checkpoint_results"]
            return any(each["metrics"]["step"] == step for each in listed)
    return False


@pytest.mark.slow
def test_interrupted_and_run_again(home: Path) -> None:
    night = Night(home, steps=15, trials=4)
    process = night.start("k", is_trained=False)
    deadline = time.monotonic() + 300
    while len(night.starts()) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 3, output
    assert "was interrupted" in output
    assert "Continue with: " in output
    assert not NOISE.search(output), output
    assert not list((night.folder / "out").glob("night-*/outcome.json"))

    process = night.start("k", is_trained=False)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "4 of 4 trials ended: 4 completed" in output
    starts = night.starts()
    from_zero = [line for line in starts if line.endswith("from 0")]
    assert len(from_zero) == 4, f"each trial began once, the cut ones continued from a checkpoint: {starts}"
    assert len(starts) > 4


def test_a_bad_spec_is_said_before_anything_starts(home: Path) -> None:
    night = Night(home, steps=2, trials=1)
    spec = yaml.safe_load((home / "sweep.yaml").read_text()) | {"mode": "maximum"}
    (home / "sweep.yaml").write_text(yaml.safe_dump(spec))
    process = night.start("k")
    output, _ = process.communicate()
    assert process.returncode == 2, output
    assert "mode" in output
    assert "'max'" in output
    assert len(output.strip().splitlines()) == 1, output
    assert not (home / "out").exists()
