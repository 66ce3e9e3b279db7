"""A Ray Tune program as a task of a flow: killed in the middle, run again, it does what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import raysweep as rs
from devtools.prefect.local import LocalPrefect
from raysweep.errors import SpecError
from raysweep_prefect import tune
from tests.jobs.head import ROOT, free_ports
from tests.orchestrators.prefect import QUICK
from tests.orchestrators.tune_program import PROGRAM

FLOW = """
import json, sys
from prefect import flow
from raysweep_prefect import tune

@flow(name="tuned")
def tuned(program, storage_path):
    fields = {"isolation": "inline", "max_concurrent_trials": 1}
    names = ["first", "second"]
    ended = tune(program, names, key="n1", cluster="here", storage_path=storage_path, fields=fields)
    return {"status": ended.status, "best": ended.best.config, "sweep_id": ended.sweep_id}

print("ENDED", json.dumps(tuned(*sys.argv[1:])))
"""


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.timeout(300)
def test_a_program_that_was_killed_does_what_is_left(tmp_path: Path) -> None:
    program, marks, storage = tmp_path / "search.py", tmp_path / "marks", str(tmp_path / "sweeps")
    program.write_text(PROGRAM)
    (port,) = free_ports(1)
    roots = os.pathsep.join(str(ROOT / name) for name in (".", "engine", "flows"))
    command = [sys.executable, "-c", FLOW, str(program), storage]
    with LocalPrefect(tmp_path / "home", port=port, environment=QUICK) as servers:
        environment = servers.environment | {"PYTHONPATH": roots, "MARKS": str(marks), "DIES_AT": "2"}
        killed = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, timeout=120, check=False
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-4000:]
        assert marks.read_text().split() == ["3", "2", "1", "3", "2"]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert marks.read_text().split() == ["3", "2", "1", "3", "2", "2", "1"]
    assert done.stdout.count("best first {'x': 1}") == 1
    (ended,) = (line for line in done.stdout.splitlines() if line.startswith("ENDED "))
    found = json.loads(ended.removeprefix("ENDED "))
    assert (found["status"], found["best"]) == ("completed", {"x": 1})
    assert found["sweep_id"].startswith("second-")
    assert len(rs.sweeps(storage)) == 2


def test_a_cluster_that_takes_only_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^cluster: runs jobs"):
        tune.fn(str(tmp_path / "search.py"), cluster="http://ray:8265")
