"""What the nights of the stress run run: trials, and a training, that note what they do, where and when.

All of them wait for as long as the file `hold` is there: what nobody ends does not end by itself meanwhile.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.orchestrators.trainables import note


def trial(config: dict[str, Any]) -> None:
    """`steps` reports, a pause before each; the loss is x. One line for each thing done."""
    context, pid = rs.get_context(), os.getpid()

    def tell(word: str) -> None:
        note(config, word, context.sweep_id, context.number, pid, time.time())

    tell("start")
    for step in range(1, config["steps"] + 1):
        _pause(config)
        tell("step")
        rs.report({"loss": config["x"], "step": step})
    tell("end")


def train(config: dict[str, Any]) -> None:
    """The full-scale step: it notes the x that it was given."""
    note(config, "train", config["x"], os.getpid(), time.time())
    _pause(config)
    if config.get("has_model"):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "x").write_text(str(config["x"]))
            rs.report({"x": config["x"]}, checkpoint=folder)
    else:
        rs.report({"x": config["x"]})
    note(config, "trained", config["x"], os.getpid(), time.time())


def _pause(config: dict[str, Any]) -> None:
    time.sleep(config["pause"])
    while Path(config["hold"]).exists():
        time.sleep(0.1)
