"""Sweeps on a cluster that somebody else runs: nothing of ours stays on it, and it stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.temp_folder import processes_in
from tests.engine.conftest import ROOT, Driver, session_of, wait_for
from tests.jobs.head import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
Lines = Callable[[], list[list[str]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster of its own, started as an administrator would; yields `host:port`."""
    (port,) = free_ports(1)
    folder = Path(tempfile.mkdtemp(prefix="rst-", dir="/tmp"))
    command = [
        sys.executable,
        "-m",
        "raysweep.raycompat.patience",
        "start",
        "--head",
        "--block",
        "--num-cpus=2",
    ]
    command += [f"--port={port}", "--include-dashboard=false", "--disable-usage-stats"]
    process = subprocess.Popen(
        [*command, "--node-ip-address=127.0.0.1", f"--temp-dir={folder}"],
        start_new_session=True,
        env=os.environ | {"RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: any(folder.glob("session_*/sockets/raylet*")) or process.poll() is not None)
        yield f"127.0.0.1:{port}"
        assert process.poll() is None
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        for pid in {*session_of(process.pid), *processes_in(folder)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_for(lambda: not processes_in(folder), 10)
        shutil.rmtree(folder, ignore_errors=True)


def check_nothing_is_left(address: str) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        import ray
        from ray.util import placement_group_table
        from tests.insides import actor_states

        ray.init(address=sys.argv[1], log_to_driver=False)
        deadline = time.monotonic() + 20
        while True:
            actors = [state for state in actor_states() if state != "DEAD"]
            groups = [g for g in placement_group_table().values() if g["state"] != "REMOVED"]
            free = ray.available_resources().get("CPU")
            if (not actors and not groups and free == 2.0) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert not actors, actors
        assert not groups, groups
        assert free == 2.0, free
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, address], cwd=ROOT, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.servers
def test_a_sweep_on_an_existing_cluster_leaves_nothing_on_it(
    cluster: str,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    outcome = drive(make_spec("surroundings", num_samples=6), address=cluster).outcome()
    assert outcome.counts == {"completed": 6}
    assert len(lines()) == 6

    # "auto" finds it by the environment. Ended or interrupted, neither leaves anything.
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    spec = make_spec("forever", num_samples=2, name="auto", isolation="process")
    driver = drive(spec, address="auto")
    wait_for(lambda: len(lines()) == 8 or driver.process.poll() is not None)
    driver.process.send_signal(signal.SIGINT)
    code, said = driver.finish(30)
    assert (code, said["error"]) == (3, "SweepInterrupted"), driver.errors
    pids = {int(line[3]) for line in lines()}
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10)
    check_nothing_is_left(cluster)


@pytest.mark.servers
def test_a_process_that_requires_a_token_is_told_that_the_cluster_has_none(
    cluster: str,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray itself would end each worker as it starts, since "all references to the actor were removed"."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    code, said = drive(make_spec("noop"), address=cluster).finish()
    assert (code, said["error"]) == (2, "ClusterAuthError")
    assert said["message"] == (
        f"Ray cluster {cluster}: it has no tokens, and RAY_AUTH_MODE=token is set here: no worker could"
        " start; unset RAY_AUTH_MODE, or start the cluster with it"
    )


@pytest.mark.slow
def test_nothing_answers(make_spec: Callable[..., rs.SweepSpec], drive: Callable[..., Any]) -> None:
    code, said = drive(make_spec("noop"), address="127.0.0.1:1").finish()
    assert (code, said["error"]) == (1, "ClusterUnreachableError")
    assert "127.0.0.1:1" in said["message"]
