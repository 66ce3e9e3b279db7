"""Trainables of the flow's tests: they write a line for each start, and take their time."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs


def slow_steps(config: dict[str, Any]) -> None:
    """20 steps of 0.2 s, each with a checkpoint; continues from the last one."""
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


STEPS = 8
BEGIN: dict[str, Any] = {"step": 0, "weights": [0.1 * number for number in range(1, 6)], "momentum": 0.0}


def descended(at: dict[str, Any], x: float) -> dict[str, Any]:
    """A step of gradient descent further; what it ends with depends on every step that was made."""
    step, momentum = at["step"] + 1, 0.9 * at["momentum"] + sum(at["weights"]) / 7
    weights = [w - x * 0.01 * (momentum + w**3) / step for w in at["weights"]]
    return {"step": step, "weights": weights, "momentum": momentum}


def measured(at: dict[str, Any]) -> dict[str, Any]:
    """What `descend` reports there."""
    return {"loss": sum(w * w for w in at["weights"]) / 3, "step": at["step"]}


def descend(config: dict[str, Any]) -> None:
    """Gradient descent, each step with a checkpoint; before the fifth it waits for `config["go"]`."""
    context = rs.get_context()
    at = BEGIN
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            at = json.loads((folder / "at.json").read_text())
    if context.rank == 0:
        with Path(config["full_log"]).open("a") as log:
            log.write(f"from {at['step']}\n")
    while at["step"] < STEPS:
        while at["step"] >= 4 and not Path(config["go"]).exists():
            time.sleep(0.05)
        at = descended(at, config["x"])
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "at.json").write_text(json.dumps(at))
            rs.report(measured(at), checkpoint=name if context.rank == 0 else None)
