"""Measures a group of figures in this process, with the tree that PYTHONPATH names; JSON into a file.

python -m benchmarks.everyday.measuring TREE GROUP FILE
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import raysweep
from benchmarks.everyday.figures import FIGURES, AbsentError, Done, Figure
from benchmarks.measure import Json

FIXED: Final = 1
"""The size at which a figure costs what it costs whatever the size."""
CALLS: Final = 5
ENOUGH_S: Final = 1.0
"""After this time, with what prepares the calls, no further one is made."""


def main() -> None:
    """Measure, and write down what was found."""
    tree, group, file = sys.argv[1:4]
    if not Path(str(raysweep.__file__)).is_relative_to(tree):
        raise SystemExit(f"raysweep comes from {raysweep.__file__}, not from {tree}")
    wanted = [figure for figure in FIGURES if figure.group == group]
    with ray_of(wanted):
        found = {figure.name: measured(figure, figure.sizes) for figure in wanted}
    Path(file).write_text(json.dumps(found))


@contextmanager
def ray_of(figures: list[Figure]) -> Iterator[None]:
    """One embedded Ray for all figures that need it: its start would hide what they measure."""
    if not any(figure.needs_ray for figure in figures):
        yield
        return
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def measured(figure: Figure, sizes: tuple[int, int]) -> Json:
    """Seconds by size, and the units of work at the larger one; or why there are none."""
    try:
        once(figure, FIXED)  # imports, and what is made once
        done = {size: least(figure, size) for size in (FIXED, *sizes)}
    except AbsentError as error:
        return {"absent": str(error)}
    except Exception as error:  # noqa: BLE001  an earlier tree may not know what a figure uses
        return {"absent": f"{type(error).__name__}: {error}"[:300]}
    return {str(size): each.seconds for size, each in done.items()} | {"units": done[sizes[1]].units}


def least(figure: Figure, size: int) -> Done:
    """The quickest of some calls: the kernel and other processes only ever add time."""
    began, found = time.perf_counter(), [once(figure, size)]
    while len(found) < CALLS and time.perf_counter() - began < ENOUGH_S:
        found.append(once(figure, size))
    return min(found, key=lambda done: done.seconds)


def once(figure: Figure, size: int) -> Done:
    """One call at one size."""
    with tempfile.TemporaryDirectory(prefix="raysweep-benchmark-", ignore_cleanup_errors=True) as folder:
        call = figure.prepare(size, Path(folder))
        gc.collect()
        clock = time.process_time if figure.clock == "cpu" else time.perf_counter
        began = clock()
        found = call()
        seconds = clock() - began
    done = found if isinstance(found, Done) else Done()
    return Done(units=done.units, seconds=seconds if done.seconds is None else done.seconds)


if __name__ == "__main__":
    main()
