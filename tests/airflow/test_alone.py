"""The provider in an environment that has neither Ray nor Prefect, as an Airflow worker's: a whole night."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from devtools.airflow.local import connection_to, settings
from tests.environments import ROOT, new_environment
from tests.jobs.head import Head, free_ports

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]
Run = Callable[..., str]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone") / "sweeps"


@pytest.fixture(scope="module")
def run(running_head: Head, storage: Path) -> Run:
    """Run a command of the environment; what it prints."""
    python = new_environment(storage.parent / "venv", "airflow")
    home = storage.parent / "home"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "RAY_"))}
    environment = clean | settings(home, ROOT / "dags", free_ports(1)[0])
    environment |= connection_to(running_head, str(storage)) | {"HOME": str(home), "NO_PROXY": "*"}

    def run(command: str, *arguments: str, is_good: bool = True) -> str:
        done = subprocess.run(
            [python.with_name(command), *arguments],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode == 0) is is_good, (done.stdout + done.stderr)[-4000:]
        return done.stdout + done.stderr

    run("airflow", "db", "migrate")
    return run


@pytest.mark.parametrize("name", ["ray", "prefect"])
def test_it_is_not_there(run: Run, name: str) -> None:
    assert "ModuleNotFoundError" in run("python", "-c", f"import {name}", is_good=False)


def test_airflow_shows_the_provider(run: Run) -> None:
    assert "raysweep" in run("airflow", "providers", "list")
    assert "raysweep_airflow.hooks.RaySweepHook" in run("airflow", "providers", "hooks", "-o", "plain")
    assert "raysweep_airflow.links.RayJobLink" in run("airflow", "providers", "links", "-o", "plain")
    assert "raysweep" in run("airflow", "plugins", "-o", "plain")


def test_the_connection_answers(head: Head, run: Run) -> None:
    assert "Connection success" in run("airflow", "connections", "test", "raysweep_default")


def test_a_night(head: Head, run: Run, storage: Path) -> None:
    at = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    conf = json.dumps({"example": "quick", "deadline": at})
    said = run("airflow", "dags", "test", "nightly_sweep", "--conf", conf)
    # The sweep and the gate's run of the best, on the head; then the training.
    for kind, names in {"outcome": ["quick", "quick-gate"], "train_outcome": ["quick-full"]}.items():
        found = {path.parent.name: json.loads(path.read_text()) for path in storage.glob(f"*/{kind}.json")}
        assert sorted(name.rpartition("-")[0] for name in found) == names, said[-4000:]
        assert {outcome["status"] for outcome in found.values()} == {"completed"}, said[-4000:]
