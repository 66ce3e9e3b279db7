"""What a population learns: a number that depends on every rate that it was ever moved by, in order."""

from __future__ import annotations

import json
from typing import Any

import raysweep as rs

TARGET = 3.0


def descend(config: dict[str, Any]) -> None:
    """`steps` steps towards 3 at the rate that holds for each, from a checkpoint or from 10."""
    context = rs.get_context()
    at = {"step": 0, "x": 10.0}
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            at = json.loads((folder / "at.json").read_text())
    while at["step"] < config["steps"]:
        rate = context.config_at(at["step"], config)["rate"]
        at = {"step": at["step"] + 1, "x": at["x"] - rate * (at["x"] - TARGET)}
        with rs.new_checkpoint() as folder:
            (folder / "at.json").write_text(json.dumps(at))
            metrics = {"loss": abs(at["x"] - TARGET), "x": at["x"], "step": at["step"]}
            rs.report(metrics, checkpoint=folder, wait=True)
