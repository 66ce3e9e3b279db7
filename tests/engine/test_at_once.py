"""Two runs at once in one process share its Ray: both run, and the last one ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import ROOT, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(storage: Path, log: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*whats: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.engine.at_once", str(storage), str(log), *whats]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[dict[str, str], str]:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    said = json.loads(out.strip().splitlines()[-1])
    assert not said["is_up"]
    return said["ended"], errors


def test_all_that_can_run_do_and_the_others_say_why_not(start: Start) -> None:
    ended, errors = finish(start("one", "two", "one", "too-large", "elsewhere"))
    assert [ended[name] for name in ("one 0", "two 1", "one 2")] == ["completed"] * 3
    assert ended["too-large 3"].startswith("InfeasibleResourcesError: resources.cpu: ")
    assert ended["elsewhere 4"].startswith("ClusterUnreachableError: Ray cluster 127.0.0.1:1: ")
    assert "is ignored: the Ray of this process runs already, with" in errors


@pytest.mark.slow
def test_ctrl_c_interrupts_a_sweep_on_another_thread_as_well(
    start: Start, lines: Callable[[], list[list[str]]]
) -> None:
    process = start("long", "main:endless")
    wait_for(lambda: len({line[3] for line in lines()}) >= 2)
    process.send_signal(signal.SIGINT)
    ended, _ = finish(process)
    assert [ended[name].partition(":")[0] for name in sorted(ended)] == ["SweepInterrupted"] * 2


@pytest.mark.slow
def test_a_training_runs_beside_a_sweep(start: Start) -> None:
    ended, _ = finish(start("one", "training"))
    assert ended == {"one 0": "completed", "training 1": "completed"}
