"""Nights of the flow in a process of their own, with a Prefect server that serves all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_nights(script: str, folder: Path, night: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a script with the arguments of the flow in a process of its own; what it printed of each night."""
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(night)],
        cwd=ROOT,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.removeprefix("NIGHT ") for line in done.stdout.splitlines() if line.startswith("NIGHT ")]
    return [json.loads(line) for line in lines]


def environment(folder: Path) -> dict[str, str]:
    """That of this process, with a Prefect of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {
        "HOME": str(folder),
        "COLUMNS": "200",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        # On a busy machine the raylet may take longer than the 30 s that Ray grants it.
        "RAY_raylet_start_wait_time_s": "120",
    }
