"""Trainables that end in milliseconds, for guides and tests."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def quadratic(config: Mapping[str, float]) -> dict[str, float]:
    """`(x - 3)^2 + (y + 1)^2`, least at x = 3, y = -1. A missing key counts as 0."""
    return {"loss": (config.get("x", 0.0) - 3) ** 2 + (config.get("y", 0.0) + 1) ** 2}


def steps(config: Mapping[str, Any]) -> None:
    """Walk from `start` (default 10) towards 0 at `rate` (default 0.5), in `steps` (default 10) steps.

    Each report carries a checkpoint, and a run that is taken up again continues from its last one.
    Reports `{"loss": where it stands, "step": 1, 2, ...}`.
    """
    import raysweep as rs

    at = {"loss": float(config.get("start", 10.0)), "step": 0}
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            at = json.loads((Path(folder) / "at.json").read_text())
    while at["step"] < config.get("steps", 10):
        at = {"loss": at["loss"] * (1 - config.get("rate", 0.5)), "step": at["step"] + 1}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at.json").write_text(json.dumps(at))
            rs.report(at, checkpoint=folder)
