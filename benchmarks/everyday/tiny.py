"""The figures that need no Ray, once at sizes that measure nothing: to see that they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.everyday.comparing import run as compare
from benchmarks.everyday.figures import FIGURES
from benchmarks.everyday.measuring import once
from benchmarks.measure import Json


def run(rounds: int, *, is_tiny: bool = False, against: str = "", **more: Any) -> Json:
    """All figures of this tree, beside `against` where it is given; `is_tiny`: see the module."""
    if not is_tiny:
        return compare(rounds, against=Path(against) if against else None, **more)
    found = {each.name: once(each, 2).seconds for each in FIGURES if not each.needs_ray}
    return {"what": "figures of daily use", "figures": found}
