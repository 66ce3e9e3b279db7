"""The tutorial, as its reader does it: its files in an empty folder, its commands one after the other."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from devtools.tutorial import commands, write_files

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.ray, pytest.mark.servers, pytest.mark.timeout(900)]


@pytest.mark.slow
def test_its_commands_do_what_it_says(tmp_path: Path) -> None:
    write_files(tmp_path)
    path = [str(ROOT / package) for package in ("engine", "operators", "flows")]
    environment = os.environ | {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(path),
        "BROWSER": "true",  # opens nothing
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr

    said = {command: run(*shlex.split(command)) for command in commands()}
    assert [command.split()[1] for command in said] == ["plan", "sweep", "best", "trials", "train", "report"]
    assert "16" in said["raysweep plan digits.yaml"]
    assert "hidden" in said["raysweep best digits"]
    table = run(sys.executable, "results.py").splitlines()
    assert table[0].split() == ["trial_id", "accuracy", "config/hidden", "config/rate"]
    scores = [float(line.split()[1]) for line in table[1:]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.9
    if find_spec("matplotlib") is not None:
        run(sys.executable, "plot.py")
        assert (tmp_path / "digits.png").stat().st_size > 1000
    (model,) = (tmp_path / "home/raysweep").glob("digits-final-*/**/model.pkl")
    assert model.stat().st_size > 0
    (report,) = tmp_path.glob("digits-*.html")
    assert "<html" in report.read_text()
