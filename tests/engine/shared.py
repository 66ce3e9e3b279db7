"""A Ray of 8 logical CPUs for sweeps of several processes, and trainables that note when they ran.

`python -m tests.engine.shared` starts it, prints its address, and ends it when its input ends.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import raysweep as rs
from raysweep.cluster.ray.connection import connect
from tests.engine.trainables import note

CPUS = 8


def naps(config: dict[str, Any]) -> dict[str, float]:
    began = time.time()
    time.sleep(config["nap"])
    note(config, "ran", config["who"], rs.get_context().number, began, time.time())
    return {"loss": config["x"]}


def main() -> None:
    import ray

    with connect("local", CPUS):
        print(ray.get_runtime_context().gcs_address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
