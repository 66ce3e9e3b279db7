"""Trainables of the flow's tests: they write a line for each start, and take their time."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs


def slow_steps(config: dict[str, Any]) -> None:
    """20 steps of 0.2 s, each with a checkpoint; goes on from the last one."""
    context = rs.get_context()
    step = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            step = json.loads((folder / "step.json").read_text())
    with Path(config["log"]).open("a") as log:
        log.write(f"{context.trial_id} from {step}\n")
    while step < config["steps"]:
        time.sleep(0.2)
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step.json").write_text(json.dumps(step))
            rs.report({"loss": config["x"] / step, "step": step}, checkpoint=folder)


def train(config: dict[str, Any]) -> None:
    """One report: the sweep's x, so that the test sees that the best config came through."""
    rs.report({"x": config["x"], "steps": config["steps"]})
