"""A model whose memory depends on its width: see `memory_by_config.yaml`."""

from __future__ import annotations

import math
from typing import Any

import raysweep as rs


def train(config: dict[str, Any]) -> None:
    """Holds 1 MB for each unit of width, and reports a loss."""
    held = bytearray(config["width"] * 1_000_000)
    for step in range(1, 4):
        rs.report({"loss": abs(math.log10(config["lr"]) + 1.5) / step, "held_mb": len(held) / 1e6})
