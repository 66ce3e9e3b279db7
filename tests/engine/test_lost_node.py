"""An embedded Ray whose only node dies: no other can come, so the sweep ends at once, and can be resumed."""

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

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPT = """
import sys
import raysweep as rs
spec = {"name": "alone", "trainable": "tests.engine.test_lost_node:slow", "metric": "loss", "mode": "min"}
spec |= {"param_space": {"x": {"uniform": [0, 1]}}, "num_samples": 4, "max_concurrent_trials": 1}
spec["storage_path"] = sys.argv[1]
try:
    outcome = rs.run_sweep(spec, key="k", num_cpus=1)
    print("ENDED", outcome.status, len(outcome), flush=True)
except rs.RaysweepError as error:
    print("ERROR", type(error).__name__, error.retryable, error, flush=True)
"""


def slow(config: dict[str, float]) -> None:
    """Report for some seconds, or as long as a file of this name is there."""
    for step in range(600 if Path(os.environ["RAYSWEEP_TEST_SLOW"]).exists() else 2):
        rs.report({"loss": config["x"] + step})
        time.sleep(0.5)


def test_an_embedded_ray_that_loses_its_only_node_ends_at_once_and_resumes(tmp_path: Path) -> None:
    slow_file, store = tmp_path / "slow", tmp_path / "store"
    slow_file.touch()
    environment = os.environ | {"RAYSWEEP_TEST_SLOW": str(slow_file)}
    command = [sys.executable, "-c", SCRIPT, str(store)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 120
        while "running" not in _states(store):
            assert time.monotonic() < until, "no trial began"
            assert running.poll() is None
            time.sleep(0.5)
        raylets = [each for each in psutil.Process(running.pid).children() if each.name() == "raylet"]
        assert len(raylets) == 1
        os.kill(raylets[0].pid, signal.SIGKILL)
        killed = time.monotonic()
        out, _ = running.communicate(timeout=150)
    took = time.monotonic() - killed
    assert "ERROR ClusterLostError True" in out, out
    assert "lost its only node" in out
    print(f"took {took:.0f} s")
    assert took < 100, "and not after failure.placement_timeout_s, 300 s"
    slow_file.unlink()
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert "ENDED completed 4" in again.stdout, again.stderr


def _states(store: Path) -> set[str]:
    try:
        return {trial.state for trial in rs.load("alone", str(store)).trials}
    except rs.RaysweepError:
        return set()
