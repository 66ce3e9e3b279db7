"""Sweeps that one flow submits at once, on the embedded Ray of its process, and the keys of its tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.prefect.local import LocalPrefect
from tests.jobs.head import ROOT, free_ports
from tests.orchestrators.prefect import QUICK

FLOW = """
import json, sys
from prefect import flow
from raysweep_prefect.tasks import sweep

def spec(seed, **fields):
    space = {"x": {"uniform": [0, 1]}}
    plain = {"name": "s", "trainable": "examples.quick:quadratic", "metric": "loss", "mode": "min"}
    own = {"num_samples": 2, "param_space": space, "seed": seed, "storage_path": sys.argv[1]}
    return plain | own | fields

@flow(name="own")
def own():
    tasks = [sweep.with_options(name=name) for name in ("east", "west")]
    running = [each.submit(spec(seed)) for seed, each in enumerate(tasks)]
    running.append(sweep.submit(spec(3, name="other")))
    ended = [each.result() for each in running]
    return {each.sweep_id: each.status for each in ended}

print("ENDED", json.dumps(own()))
"""


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_sweeps_at_once_in_one_flow_all_end(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    roots = os.pathsep.join(str(ROOT / name) for name in (".", "engine", "flows"))
    with LocalPrefect(tmp_path / "home", port=port, environment=QUICK) as servers:
        environment = servers.environment | {"PYTHONPATH": roots}
        command = [sys.executable, "-c", FLOW, str(tmp_path / "out")]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
        )
    ended = [line for line in done.stdout.splitlines() if line.startswith("ENDED ")]
    assert ended, done.stdout[-2000:] + done.stderr[-6000:]
    found = json.loads(ended[0].removeprefix("ENDED "))
    assert len(found) == 3, "each task has a key of its own"
    assert set(found.values()) == {"completed"}
