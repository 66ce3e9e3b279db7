"""The gate in the flow: what was not promoted is not trained, and Prefect says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


def test_prefect_shows_a_skipped_training(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import json
        from prefect import flow
        from raysweep.outcome import GateOutcome, SweepOutcome
        from raysweep_prefect.tasks import train

        @flow
        def night():
            gate = GateOutcome(promoted=False, why="not promoted: +0.0012 < 0.002")
            outcome = SweepOutcome(sweep_id="s", name="s", status="completed", metric="a", mode="max",
                                   started_at=0, ended_at=1, promoted=False, gate=gate)
            state = train({"trainable": "m:f"}, "k", outcome=outcome, return_state=True)
            return [state.type.value, state.name, state.message]

        print("STATE", json.dumps(night()))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("STATE ")]
    assert json.loads(line.removeprefix("STATE ")) == [
        "COMPLETED",
        "Skipped",
        "training skipped: not promoted: +0.0012 < 0.002",
    ]


def test_two_nights_of_the_same_search(tmp_path: Path) -> None:
    """The first promotes and trains; the second finds the same, which is no gain, and trains nothing."""
    log = tmp_path / "log"
    log.touch()
    sweep: dict[str, Any] = {
        "name": "night",
        "trainable": "tests.prefect.trainables:slow_steps",
        "metric": "loss",
        "mode": "min",
        "num_samples": 2,
        "seed": 5,
        "warm_start": "champion",
        "param_space": {"x": {"uniform": [1, 2]}, "steps": 2, "log": str(log)},
    }
    train = {"name": "full", "trainable": "tests.prefect.trainables:train", "scaling": {"num_workers": 1}}
    night = {"sweep": sweep, "gate": {"confirm_top_k": 1, "seeds": 2, "test": "mean"}, "train": train}
    (tmp_path / "night.yaml").write_text(yaml.safe_dump(night))
    first, second = (run_night(tmp_path, key) for key in ("2026-11-21", "2026-11-22"))
    assert "no champion yet; promoted" in first
    assert "model" in first
    assert "training skipped: " in second
    assert "is no gain" in second or "no candidate" in second
    record = json.loads((tmp_path / "out/champions/night.json").read_text())
    assert [each["promoted"] for each in record["history"]] == [True, False]


def run_night(folder: Path, key: str) -> str:
    command = [
        sys.executable,
        "-m",
        "raysweep_prefect.nightly",
        "--key",
        key,
        "--storage",
        str(folder / "out"),
    ]
    done = subprocess.run(
        [*command, "--pipeline", str(folder / "night.yaml")],
        cwd=ROOT,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {
        "HOME": str(folder),
        "COLUMNS": "200",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    }
