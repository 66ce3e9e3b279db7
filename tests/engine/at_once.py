"""Several runs at once in one process, each on a thread: `python -m tests.engine.at_once STORAGE LOG WHAT…`.

Prints how each ended, and whether Ray runs afterwards. `main:WHAT` runs on the main thread.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any

import raysweep as rs

HERE = "tests.engine.trainables"


def sweep(name: str, trainable: str = "slow", **options: Any) -> str:
    _, storage, log, *_ = sys.argv
    fields = {"num_samples": 3, "param_space": {"log": log, "x": {"uniform": [0, 1]}}} | options.pop(
        "fields", {}
    )
    spec = rs.SweepSpec(
        name=name, trainable=f"{HERE}:{trainable}", metric="loss", mode="min", storage_path=storage, **fields
    )
    # What is told of the start asks for the Ray of the process while another thread imports it.
    return rs.run_sweep(spec, key="k", on_progress=lambda _: None, **options).status


def training() -> str:
    spec = rs.TrainSpec(
        name="t",
        trainable="tests.engine.trainruns:loop",
        config={"trial": 0, "attempt": 1, "steps": 2, "x": 0.5, "log": sys.argv[2]},
        scaling={"num_workers": 1},
        storage_path=sys.argv[1],
    )
    return rs.run_training(spec, key="k").status


WHAT: dict[str, Any] = {
    "one": lambda: sweep("one", num_cpus=2),
    "two": lambda: sweep("two", num_cpus=1),
    "too-large": lambda: sweep("too-large", fields={"resources": {"cpu": 64}}),
    "elsewhere": lambda: sweep("elsewhere", address="127.0.0.1:1"),
    "long": lambda: sweep("long", "forever"),
    "endless": lambda: sweep("endless", "forever"),
    "training": training,
}


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    ended: dict[str, str] = {}

    def run(what: str, at: int) -> None:
        try:
            ended[f"{what} {at}"] = WHAT[what]()
        except BaseException as error:  # noqa: BLE001
            ended[f"{what} {at}"] = f"{type(error).__name__}: {error}"

    whats = [
        (what.removeprefix("main:"), at, what.startswith("main:")) for at, what in enumerate(sys.argv[3:])
    ]
    threads = [threading.Thread(target=run, args=(what, at)) for what, at, is_main in whats if not is_main]
    for thread in threads:
        thread.start()
    for what, at, is_main in whats:
        if is_main:
            run(what, at)
    for thread in threads:
        thread.join()
    import ray

    print(json.dumps({"ended": ended, "is_up": ray.is_initialized()}), flush=True)


if __name__ == "__main__":
    main()
