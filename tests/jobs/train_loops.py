"""Trainables of training steps on a cluster."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs


def counting(config: dict[str, Any]) -> None:
    """Counts up in a file, with a checkpoint at each step; continues from the last one."""
    first = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            first = int((Path(folder) / "step").read_text()) + 1
    for step in range(first, config["steps"]):
        time.sleep(config["pause"])
        with open(config["log"], "a") as log:
            log.write(f"{step}\n")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(step))
            rs.report({"loss": 1.0 / (step + 1)}, checkpoint=folder)
