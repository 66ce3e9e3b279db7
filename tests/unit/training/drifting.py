"""Sweeps of three scales whose optimum moves."""

from __future__ import annotations

import math
from typing import Any

SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1]},
    "rounds": {"lograndint": [10, 2000]},
    "act": {"choice": ["relu", "gelu"]},
}
SWEEP: dict[str, Any] = {
    "name": "flights",
    "trainable": "m:f",
    "param_space": SPACE,
    "metric": "loss",
    "mode": "min",
    "constraints": (),
    "checkpoint": {},
    "search": "random",
    "scheduler": "fifo",
    "num_samples": 60,
    "seed": 4,
    "scales": [{"rows": 1000}, {"rows": 4000}, {"rows": 16000}],
}


def drifting(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """The best lr falls, and the best number of rounds grows, with the square root of the rows."""
    if iteration > 1:
        return None
    root = math.sqrt(config["rows"] / 1000)
    lr, rounds = math.log(config["lr"] * root / 0.1), math.log(config["rounds"] / root / 50)
    bad = 0.05 if config["act"] == "gelu" else 0.0
    return {"loss": 0.1 * lr * lr + 0.05 * rounds * rounds + bad + 1 / math.log(config["rows"])}
