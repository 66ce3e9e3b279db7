"""A program that is interrupted: `python -m tests.engine.interrupted HOW STORAGE ADDRESS LOG`.

HOW: `script`; `asyncio`, in a coroutine; `cells`, one after the other in a loop that runs, as in a notebook.
ADDRESS `local` starts a Ray.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import raysweep as rs


def sweep() -> rs.SweepOutcome:
    _, _, storage, address, log = sys.argv
    spec = rs.SweepSpec(
        name="t",
        trainable="tests.engine.trainables:forever",
        param_space={"log": log, "x": {"uniform": [0, 1]}},
        metric="loss",
        mode="min",
        num_samples=4,
        stop={"grace_s": 0.5},
        storage_path=storage,
    )
    return rs.run_sweep(spec, key="k", address=address, num_cpus=2 if address == "local" else None)


async def in_async_code() -> None:
    print("LOST", sweep().status)


async def in_cells() -> None:
    """The kernel has Python's own handler while a cell runs, and shows what the cell raised."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for cell in (1, 2):
        try:
            sweep()
        except BaseException as error:  # noqa: BLE001  as the kernel does
            print(f"CELL {cell}: {type(error).__name__}: {error}", flush=True)
        print(f"CONNECTED {is_connected()}", flush=True)


def is_connected() -> bool:
    ray: Any = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


if __name__ == "__main__":
    how = sys.argv[1]
    if how == "script":
        sweep()
    else:
        asyncio.run(in_async_code() if how == "asyncio" else in_cells())
