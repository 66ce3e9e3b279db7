"""Trainables of sweeps that run on this machine without Ray."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.trainables import start

Config = dict[str, Any]


def modules(config: Config) -> dict[str, float]:
    """The number of Ray's modules that this process has imported, or its trial."""
    return {"loss": float(sum(name.partition(".")[0] == "ray" for name in sys.modules))}


def calls_ray(config: Config) -> dict[str, float]:
    import ray

    return {"loss": float(ray.get(ray.put(1.0)))}


def devices(config: Config) -> dict[str, Any]:
    """The GPUs that it has, while all others run."""
    time.sleep(config["pause"])
    return {"loss": 1.0, "devices": os.environ["CUDA_VISIBLE_DEVICES"]}


def meets_all(config: Config) -> dict[str, float]:
    """Ends once as many trials run at the same time."""
    start(config)
    while Path(config["log"]).read_text().count("\n") < config["count"]:
        time.sleep(0.02)
    return {"loss": 1.0}


def judge(checkpoint: Path, config: Config, iteration: int) -> dict[str, float]:
    """An evaluation: the number of the report that the checkpoint came with."""
    return {"judged": float(iteration)}


def leaves(checkpoint: Path, config: Config, iteration: int) -> dict[str, float]:
    """An evaluation that ends its process."""
    os._exit(0)


def ranks(config: Config) -> dict[str, Any]:
    """A member of a gang, without anything that connects them."""
    context = rs.get_context()
    return {"loss": float(os.environ["RANK"]), "world": context.world_size, "x": config["x"]}
