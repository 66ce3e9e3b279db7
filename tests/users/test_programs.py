"""Programs of newcomers, each run as its author would: in its own folder, with its own Ray."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import session_of, wait_for
from tests.sampling import first_of

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Run something in a copy of the programs; what is not installed can't be imported there."""
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}

    def run(*command: str, folder: str = ".") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path / folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return run


@pytest.fixture
def said(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """What a program that ends well prints; without a terminal it is told nothing that it did not print."""

    def run(*command: str, folder: str = ".") -> str:
        process = start(*command, folder=folder)
        out, err = process.communicate(timeout=500)
        assert process.returncode == 0, out + err
        assert session_of(process.pid) == [], "something was left behind"
        return out

    return run


@pytest.mark.slow
def test_scikit_learn_with_a_mixed_space(said: Callable[..., str]) -> None:
    """Its parameters arrive as scikit-learn wants them, and come back as columns of their types."""
    columns, best = said("forest.py").rsplit("\n", 2)[:2]
    kinds = dict(line.split() for line in columns.splitlines())
    assert kinds == {
        "config/n_estimators": "int64",
        "config/max_depth": "Int64",
        "config/criterion": kinds["config/criterion"],
        "config/min_samples_leaf": "int64",
        "config/max_features": "float64",
        "config/bootstrap": "bool",
    }
    assert kinds["config/criterion"] in ("object", "str"), "as pandas calls text"
    assert best.startswith("{'n_estimators': ")


@pytest.mark.slow
def test_a_torch_model_killed_with_9_resumes_from_its_checkpoints(
    start: Callable[..., subprocess.Popen[str]], said: Callable[..., str], tmp_path: Path
) -> None:
    log = tmp_path / "epochs.log"
    killed = start("resume.py", "0.3")
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= 8)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    wait_for(lambda: session_of(killed.pid) == [])
    before = log.read_text().splitlines()
    out = said("resume.py", "0.3")
    assert out.startswith("completed ")
    lines = [line.split() for line in log.read_text().splitlines()]
    runs = Counter((rate, int(epoch)) for rate, epoch, _ in lines)
    assert len(runs) == 2 * 12, "each epoch of each trial has run"
    assert sum(runs.values()) <= 2 * 12 + 2 * 3, "only what no checkpoint held has run again"
    again = [line for line in log.read_text().splitlines()[len(before) :] if line in before]
    repeated = [key for key, count in runs.items() if count > 1]
    assert len(again) == len(repeated), "and it has come to the same losses, to the last digit shown"


@pytest.mark.parametrize("key", first_of(["from another", "from its own folder"]))
def test_a_package_in_its_own_folder(said: Callable[..., str], key: str) -> None:
    """Neither is it installed, nor on PYTHONPATH: it lies beside its spec."""
    folder, spec = ("project", "sweep.yaml") if key == "from its own folder" else (".", "project/sweep.yaml")
    out = said("-m", "raysweep.cli", "sweep", spec, folder=folder)
    assert "4 of 4 trials ended: 4 completed" in out
    assert "profit 1.40762 (trial 00001): discount=0.178225" in out


def test_an_asyncio_service_answers_while_its_sweep_runs(said: Callable[..., str]) -> None:
    assert said("service.py") == "completed 00001 answered\nquick\n"
