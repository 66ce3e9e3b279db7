"""A server beside the program of each trial, on a real Ray: the example, and one that never becomes ready."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from tests.engine.conftest import ROOT

pytestmark = pytest.mark.ray


def left() -> list[str]:
    """The example's servers that are still there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        found += [str(entry)] * any(word.endswith(b"examples/serve/server.py") for word in words)
    return found


def spec_of(storage: Path, **changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples/serve/sweep.yaml").read_text())
    return {**spec, "storage_path": str(storage), "seed": 3, **changes}


@pytest.mark.slow
def test_the_front_of_thirty_settings_of_a_server(
    ray_cluster: RayConnection, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    outcome = rs.run_sweep(rs.SweepSpec.model_validate(spec_of(storage)), key="k")
    outcome.raise_for_status()
    assert outcome.counts["completed"] == 30
    measured = {trial.trial_id: trial.metrics for trial in outcome.trials}
    assert all(0 < each["p95_ms"] < 5_000 and each["throughput"] > 0 for each in measured.values())
    front = [trial.metrics for trial in outcome.pareto]
    assert front
    for one in front:
        assert not any(
            each["p95_ms"] < one["p95_ms"] and each["throughput"] > one["throughput"]
            for each in measured.values()
        )
    assert not left()


def test_a_server_that_never_becomes_ready_ends_the_sweep_and_says_so(
    ray_cluster: RayConnection, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    spec = spec_of(storage, failure={"max_failures": 0})
    spec["program"]["service"] |= {"ready": "http://127.0.0.1:{port}9/health", "ready_timeout_s": 0.5}
    outcome = rs.run_sweep(rs.SweepSpec.model_validate(spec), key="k")
    assert outcome.status == "failed"
    assert "server.py was not ready within 0.5 s (program.service.ready_timeout_s)" in str(outcome)
    assert outcome.counts.get("completed", 0) == 0
    assert len(outcome.trials) < 30, "the breaker ends it early"
    assert not left()


def test_of_two_trials_whose_servers_have_one_port_none_measures_the_others_server(
    ray_cluster: RayConnection, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are started at once; the server that listens later would find the port taken."""
    monkeypatch.chdir(ROOT)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
    spec = spec_of(storage, num_samples=2, max_concurrent_trials=2, failure={"max_failures": 0})
    ask = f"curl -s http://127.0.0.1:{port}/health && sleep 3 && echo p95_ms=1 throughput=1"
    spec["command"] = ["bash", "-c", ask, "load", "{clients}"]
    spec["program"]["service"] |= {
        "command": ["python", "examples/serve/server.py", "--port", port, "{args}"],
        "ready": f"http://127.0.0.1:{port}/health",
    }
    outcome = rs.run_sweep(rs.SweepSpec.model_validate(spec), key="k")
    assert (outcome.counts["completed"], outcome.counts["failed"]) == (1, 1), str(outcome)
    (failed,) = (trial for trial in outcome.trials if trial.state == "failed")
    assert f"the service of another trial on this node has port {port}" in failed.problem
    assert not left()
