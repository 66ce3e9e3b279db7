"""Trainables whose checkpoints are judged elsewhere, and their judges."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.trainables import note

Config = dict[str, Any]
LENGTH = 4


def train(config: Config) -> None:
    """Reports no accuracy: that is judged by its checkpoints."""
    step = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            step = json.loads((folder / "state").read_text())["step"]
    while step < LENGTH:
        step += 1
        with rs.new_checkpoint() as folder:
            (folder / "state").write_text(json.dumps({"step": step, "x": config["x"]}))
            rs.report({"step": step}, checkpoint=folder)
    note(config, "end", rs.get_context().number)


def accuracy(x: float, step: int) -> float:
    return round(1 - (x - 0.3) ** 2 - x / (5 * step), 6)


def judge(checkpoint: Path, config: Config, iteration: int) -> dict[str, Any]:
    """Slower than the training. Its process dies where `config["dies"]` says so, each time once."""
    state = json.loads((checkpoint / "state").read_text())
    assert (state["step"], state["x"]) == (iteration, config["x"])
    number = rs.get_context().number
    note(config, "judge", number, iteration, os.getpid())
    if [number, iteration] in config.get("dies", []):
        marker = Path(f"{config['log']}.{number}.{iteration}")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(config.get("judge_s", 0.1))
    return {"acc": accuracy(state["x"], iteration)}


def broken_judge(checkpoint: Path, config: Config, iteration: int) -> dict[str, Any]:
    """Cannot judge the second checkpoint of any trial."""
    if iteration == 2:
        note(config, "broken", rs.get_context().number)
        raise KeyError("no such layer")
    return {"acc": accuracy(config["x"], iteration)}


def helped_judge(checkpoint: Path, config: Config, iteration: int) -> dict[str, Any]:
    """Has a task of Ray do the work."""
    import ray

    task = ray.remote(accuracy).options(num_cpus=0.25)
    return {"acc": ray.get(task.remote(config["x"], iteration), timeout=60)}
