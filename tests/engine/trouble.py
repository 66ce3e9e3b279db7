"""Trainables that hang, take too much, ask for what they cannot get, or meet a bad node."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.trainables import note

Config = dict[str, Any]


def hang_once(config: Config) -> None:
    """Reports twice, then hangs in its first attempt."""
    attempt = rs.get_context().attempt
    for step in range(1, 4):
        note(config, "step", step, attempt)
        rs.report({"loss": 1.0 / step})
        if step == 2 and attempt == 1:
            wait_for_ever()


def wait_for_ever() -> None:
    time.sleep(600)


def grow(config: Config) -> None:
    """Takes `config["gib"]` in its first attempt, and little in others."""
    context = rs.get_context()
    note(config, "memory", context.attempt, int(context.resources.get("memory", 0)))
    held = bytearray(int(config["gib"] * 2**30)) if context.attempt == 1 else bytearray()
    for place in range(0, len(held), 4096):
        held[place] = 1
    for step in range(1, 200 if held else 2):
        rs.report({"loss": float(step)})
        time.sleep(0.1)


def wait_for_own_task(config: Config) -> dict[str, float]:
    """Starts a task inside its own resources, all of which it holds; the trials before `from` do not."""
    import ray

    if rs.get_context().number < config.get("from", 0):
        return {"loss": 1.0}

    @ray.remote(num_cpus=1)
    def nested() -> float:
        return 1.0

    return {"loss": ray.get(nested.remote())}


def wait_for_own_group(config: Config) -> dict[str, float]:
    """Asks for a placement group that has no room beside the sweep's own."""
    import ray
    from ray.util.placement_group import placement_group

    group = placement_group([{"CPU": config["cpus"]}])
    ray.get(group.ready())
    return {"loss": 1.0}


def group_of_its_own(config: Config) -> dict[str, float]:
    """Makes a placement group beside the sweep's own; its first attempt is killed with it."""
    import ray
    from ray.util.placement_group import placement_group

    ray.get(placement_group([{"CPU": 1}]).ready())
    if rs.get_context().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"loss": 1.0}


def fail_deeply(config: Config) -> None:
    """Raises with a traceback that is far longer than what an outcome carries inline."""
    raise ValueError("bottom\n" + "\n".join(f"line {number:06d}" for number in range(3_000)))


def node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def steady(config: Config) -> None:
    """So many steps; a checkpoint every `config["every"]` of them, or when one is asked for."""
    context, node = rs.get_context(), node_id()
    begin = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            begin = int((folder / "step").read_text())
    note(config, "start", context.number, context.attempt, node, begin, time.time())
    if node in Path(config["bad_nodes"]).read_text():
        raise RuntimeError("this node's accelerator has fallen off the bus")
    for step in range(begin + 1, config["steps"] + 1):
        time.sleep(config["step_s"])
        note(config, "step", context.number, step, node)
        if step % config["every"] == 0 or rs.should_checkpoint():
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "step").write_text(str(step))
                rs.report({"loss": 1.0 / step}, checkpoint=folder)
        else:
            rs.report({"loss": 1.0 / step})
