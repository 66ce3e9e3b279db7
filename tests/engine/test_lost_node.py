"""An embedded Ray that loses its node or its control store: the run ends, says so, and can be resumed.

Ray's C++ core would end the process without a word, some seconds or a minute later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import raysweep as rs

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
SCRIPT = """
import sys
import raysweep as rs
kind, store = sys.argv[1:]
spec = {"name": "alone", "trainable": "tests.engine.test_lost_node:slow", "storage_path": store}
searched = {"metric": "loss", "mode": "min", "num_samples": 4, "max_concurrent_trials": 1}
searched |= {"param_space": {"x": {"uniform": [0, 1]}}}
trained = {"config": {"x": 1.0}, "scaling": {"num_workers": 1}, "failure": {"max_failures": 9}}
try:
    if kind == "sweep":
        outcome = rs.run_sweep(spec | searched, key="k", num_cpus=1)
    else:
        outcome = rs.run_training(spec | trained, key="k")
    print("ENDED", outcome.status, flush=True)
except rs.RaysweepError as error:
    print("ERROR", type(error).__name__, error.retryable, error, flush=True)
"""


def slow(config: dict[str, float]) -> None:
    """Report for some seconds, or as long as a file of this name is there."""
    slow_file = Path(os.environ["RAYSWEEP_TEST_SLOW"])
    for step in range(600 if slow_file.exists() else 2):
        rs.report({"loss": config["x"] + step})
        slow_file.with_name("begun").touch()
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "process", "said"),
    [
        ("training", "raylet", "its raylet was ended by SIGKILL"),
        ("training", "gcs_server", "its control store"),
        ("sweep", "raylet", "its raylet was ended by SIGKILL"),
        ("sweep", "gcs_server", "its control store"),
    ],
)
def test_an_embedded_ray_that_dies_ends_the_run_with_a_line_and_resumes(
    kind: str, process: str, said: str, tmp_path: Path
) -> None:
    slow_file, store = tmp_path / "slow", tmp_path / "store"
    slow_file.touch()
    environment = os.environ | {"RAYSWEEP_TEST_SLOW": str(slow_file)}
    command = [sys.executable, "-c", SCRIPT, kind, str(store)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 120
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < until, "nothing began"
            assert running.poll() is None
            time.sleep(0.2)
        (found,) = [each for each in psutil.Process(running.pid).children() if each.name() == process]
        os.kill(found.pid, signal.SIGKILL)
        killed = time.monotonic()
        out, _ = running.communicate(timeout=150)
    took = time.monotonic() - killed
    assert "ERROR ClusterLostError True" in out, (running.returncode, out)
    assert said in out
    print(f"took {took:.0f} s")
    assert took < 50, "before Ray ends the process, a minute after its control store"
    slow_file.unlink()
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert "ENDED completed" in again.stdout, again.stderr
