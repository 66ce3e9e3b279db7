"""The example sweep through the real command line: killed in the middle, run again, equal in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysweep import run_sweep
from raysweep.cluster.ray.connection import RayConnection
from raysweep.core import decode, trial_id
from raysweep.core.vocabulary.events import TrialReturned, TrialStopped
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def write_spec(folder: Path) -> Path:
    """The sweep of examples/flights: sequential, fewer trials and rows, a line in a file for each start."""
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples/flights/sweep.yaml").read_text())
    spec |= {
        "trainable": "tests.engine.trainables:flights",
        "num_samples": 9,
        "max_concurrent_trials": 1,
        "search": {"tpe": {"n_startup_trials": 3}},
        "storage_path": str(folder / "sweeps"),
    }
    spec["param_space"]["log"] = str(folder / "starts")
    spec["scale"] = {"rows": 20_000}
    path = folder / "flights.yaml"
    path.write_text(yaml.safe_dump(spec))
    (folder / "starts").touch()
    return path


def starts(folder: Path) -> list[tuple[str, str]]:
    """Trial and the iteration it began from, for each start."""
    lines = (folder / "starts").read_text().splitlines()
    return [(line.split()[0], line.split()[1]) for line in lines]


def ended_trials(folder: Path) -> set[str]:
    """The trials whose end is in the journal."""
    (sweep,) = (path.parent for path in (folder / "sweeps").glob("*/sweep.json"))
    records = SweepFolder(open_store(str(folder / "sweeps")), sweep.name).journal().read()
    ends = [event for event in map(decode, records) if isinstance(event, TrialReturned | TrialStopped)]
    return {trial_id(event.trial) for event in ends}


def command(path: Path, address: str) -> list[str]:
    return [sys.executable, "-m", "raysweep.cli", "sweep", str(path), "--address", address, "--json"]


def shown(outcome: SweepOutcome) -> list[Any]:
    """What must not depend on when the command was killed."""
    assert outcome.best is not None
    trials = [
        (trial.trial_id, trial.state, trial.metrics, {k: v for k, v in trial.config.items() if k != "log"})
        for trial in outcome.trials
    ]
    return [outcome.status, outcome.best.trial_id, outcome.counts, trials]


@pytest.fixture(scope="module")
def undisturbed(ray_cluster: RayConnection, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return shown(run_sweep(write_spec(tmp_path_factory.mktemp("flights"))))


@pytest.mark.slow
def test_killed_and_run_again(
    tmp_path: Path, address: str, undisturbed: list[Any], ray_cluster: RayConnection
) -> None:
    path = write_spec(tmp_path)
    process = subprocess.Popen(
        command(path, address), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # In the fourth trial: the first that the model, not chance, has chosen, with rungs behind it.
    while len(starts(tmp_path)) < 4:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    begun = {trial for trial, _ in starts(tmp_path)}
    ended = ended_trials(tmp_path)
    assert ended, "the journal has the end of a trial at most a quarter of a second later"

    again = subprocess.run(command(path, address), cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    outcome = SweepOutcome.from_json(again.stdout)
    assert outcome.generation == 2
    assert shown(outcome) == undisturbed
    counted = Counter(trial for trial, _ in starts(tmp_path))
    assert all(counted[trial] == 1 for trial in ended), "what had ended is not run again"
    assert sum(counted.values()) <= 9 + len(begun - ended), "nothing but what was cut began twice"
    assert len(begun - ended) < 4, "the journal is at most a quarter of a second behind"
