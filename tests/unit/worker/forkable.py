"""Trainables for a fork server without Ray."""

from __future__ import annotations

import time
from typing import Any

import raysweep as rs


def reports(config: dict[str, Any]) -> None:
    """Reports in a tight loop."""
    for step in range(config["reports"]):
        rs.report({"step": step, "text": "x" * 1000})


def reports_for_ever(config: dict[str, Any]) -> None:
    """Ends only if it is told to."""
    while True:
        rs.report({"loss": 1.0})
        time.sleep(0.01)


def sleeps(config: dict[str, Any]) -> None:
    """Ends only if it is interrupted."""
    time.sleep(60)
