"""`uv run` in a project: a sweep's workers run in the environment of the process, wherever it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import first_of

UV = Path(sys.executable).with_name("uv")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not UV.exists(), reason="uv is not installed here"),
]
PROGRAM = """
import sys
import raysweep as rs

def train(config):
    rs.report({"loss": config["x"]})

if __name__ == "__main__":
    spec = rs.SweepSpec(name="uv", trainable=train, param_space={"x": {"grid_search": [1, 2]}}, metric="loss",
                        mode="min", max_concurrent_trials=2, storage_path=sys.argv[1])
    print("OUTCOME", rs.run_sweep(spec, key="k", progress=False).status)
"""


@pytest.mark.parametrize("folder", first_of(["jobs", "."]))
def test_a_sweep_runs_by_uv_run(tmp_path: Path, folder: str) -> None:
    project = tmp_path / "mine"
    (project / folder).mkdir(parents=True)
    text = '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = []\n'
    (project / "pyproject.toml").write_text(text)
    (project / folder / "night.py").write_text(PROGRAM)
    environment = {
        name: value for name, value in os.environ.items() if name != "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
    }
    command = [
        str(UV),
        "run",
        "--active",
        "--no-sync",
        "--offline",
        "python",
        "night.py",
        str(tmp_path / "store"),
    ]
    done = subprocess.run(
        command,
        cwd=project / folder,
        env=environment | {"VIRTUAL_ENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "OUTCOME completed" in done.stdout, done.stderr[-3000:]
