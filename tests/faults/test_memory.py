"""Ray's memory monitor ends workers: their trials get more memory and another try, and so do innocents."""

from __future__ import annotations

from pathlib import Path

import pytest

import raysweep as rs
from tests.faults.nodes import driving, read_log, several_nodes

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]
GIB = 2**30


def threshold(room_bytes: int) -> float:
    """The part of the machine's memory at which the monitor acts: what is in use now, and so much more."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    used = (kib["MemTotal"] - kib["MemAvailable"]) * 1024
    return (used + room_bytes) / (kib["MemTotal"] * 1024)


def test_a_trial_that_the_memory_monitor_ended_gets_more_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    spec = rs.SweepSpec(
        name="t",
        trainable="tests.engine.trouble:grow",
        param_space={"log": str(log), "gib": 5},
        metric="loss",
        mode="min",
        resources={"cpu": 1, "memory": GIB},
        failure={"backoff_initial_s": 0.05, "max_failures": 0, "max_worker_deaths": 0},
        storage_path=str(tmp_path / "sweeps"),
    )
    limits = {"memory_usage_threshold": threshold(3 * GIB), "memory_monitor_refresh_ms": 100}
    with several_nodes(num_cpus=1, **limits) as cluster, driving(spec, cluster.address) as driver:
        outcome = driver.outcome()
    (trial,) = outcome.trials
    assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"]
    error = trial.attempts[0].error
    assert error is not None
    assert (error.kind, error.type) == ("oom", "OutOfMemoryError"), "the fault has fired"
    assert [line[1] for line in read_log(log)] == ["1", "2"]
