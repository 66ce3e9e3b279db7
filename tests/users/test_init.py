"""What `raysweep init` writes runs by the commands that it prints, on a Ray of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RAYSWEEP = str(Path(sys.executable).parent / "raysweep")


def call(*arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
    home = os.environ | {"HOME": str(at)}
    return subprocess.run(
        [RAYSWEEP, *arguments], cwd=at, env=home, capture_output=True, text=True, check=False, timeout=200
    )


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_the_first_sweep_runs_as_it_is(tmp_path: Path) -> None:
    assert call("init", "churn", at=tmp_path).returncode == 0
    ran = call("sweep", "sweep.yaml", "--key", "first", "--json", "--num-cpus", "2", at=tmp_path / "churn")
    assert ran.returncode == 0, ran.stderr
    outcome = json.loads(ran.stdout)
    assert outcome["status"] == "completed"
    assert {trial["state"] for trial in outcome["trials"]} <= {"completed", "stopped"}
    assert outcome["best"]["score"] < 0.3
    assert outcome["best"]["checkpoint_uri"]
    best = call("best", "churn@latest", at=tmp_path / "churn")
    assert best.returncode == 0
    assert best.stdout.startswith("loss 0.")
