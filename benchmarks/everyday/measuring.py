"""Measures a group of figures in this process, with the tree that PYTHONPATH names; JSON into a file.

python -m benchmarks.everyday.measuring TREE GROUP FILE
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import raysweep
from benchmarks.everyday.figures import FIGURES, AbsentError, Figure
from benchmarks.measure import Json

FIXED = 1
"""The size at which a figure costs what it costs whatever the size."""


def main() -> None:
    """Measure, and write down what was found."""
    tree, group, file = sys.argv[1:4]
    if not Path(str(raysweep.__file__)).is_relative_to(tree):
        raise SystemExit(f"raysweep comes from {raysweep.__file__}, not from {tree}")
    found = {figure.name: measured(figure, figure.sizes) for figure in FIGURES if figure.group == group}
    Path(file).write_text(json.dumps(found))


def measured(figure: Figure, sizes: tuple[int, int]) -> Json:
    """Seconds by size; or why there are none."""
    try:
        once(figure, FIXED)  # imports, and what is made once
        return {str(size): once(figure, size) for size in (FIXED, *sizes)}
    except AbsentError as error:
        return {"absent": str(error)}
    except Exception as error:  # noqa: BLE001  an earlier tree may not know what a figure uses
        return {"absent": f"{type(error).__name__}: {error}"[:300]}


def once(figure: Figure, size: int) -> float:
    """Seconds of one call at one size."""
    with tempfile.TemporaryDirectory(prefix="raysweep-benchmark-", ignore_cleanup_errors=True) as folder:
        call = figure.prepare(size, Path(folder))
        gc.collect()
        clock = time.process_time if figure.clock == "cpu" else time.perf_counter
        began = clock()
        own = call()
        return own if figure.clock == "own" and isinstance(own, float) else clock() - began


if __name__ == "__main__":
    main()
