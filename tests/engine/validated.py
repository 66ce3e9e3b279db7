"""Trainables whose Ray Train run has its checkpoints validated, and the functions that validate."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.evaluated import accuracy
from tests.engine.trainables import note

Config = dict[str, Any]


def loop(config: Config) -> None:
    """Each step has a checkpoint; those that `config["seldom"]` does not leave out are validated."""
    from ray import train
    from ray.train import ValidationTaskConfig

    step = 0
    if (found := train.get_checkpoint()) is not None:
        with found.as_directory() as folder:
            step = json.loads((Path(folder) / "state").read_text())["step"]
    note(config, "worker", config["number"], config["attempt"], step, os.getpid())
    while step < config["steps"]:
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state").write_text(json.dumps({"step": step, "x": config["x"]}))
            asked: Any = step % config.get("seldom", 1) == 0
            if asked and step == 2:
                asked = ValidationTaskConfig(fn_kwargs={"offset": 0.0})
            here = train.get_context().get_world_rank()
            checkpoint = train.Checkpoint.from_directory(folder) if here == 0 else None
            train.report({"step": step}, checkpoint=checkpoint, validation=asked if here == 0 else False)
        time.sleep(config.get("step_s", 0))


def check(checkpoint: Any, config: Config, offset: float) -> dict[str, Any]:
    """Its process dies where `config["dies"]` says so, each time once."""
    number = rs.get_context().number
    with checkpoint.as_directory() as folder:
        state = json.loads((Path(folder) / "state").read_text())
    note(config, "validate", number, state["step"], os.getpid())
    if [number, state["step"]] in config.get("dies", []):
        marker = Path(f"{config['log']}.{number}.{state['step']}")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if [number, state["step"]] in config.get("raises", []):
        raise KeyError("no such layer")
    time.sleep(config.get("validate_s", 0.1))
    return {"acc": accuracy(state["x"], state["step"]) + offset}


def fit(config: Config) -> None:
    """A run of `loop`, and what Ray Train's result says of its validations."""
    from ray.train import CheckpointConfig, RunConfig, ScalingConfig, ValidationConfig, ValidationTaskConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    here = rs.get_context()
    result = DataParallelTrainer(
        loop,
        train_loop_config={**config, "number": here.number, "attempt": here.attempt},
        scaling_config=ScalingConfig(num_workers=config["workers"], resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(checkpoint_config=CheckpointConfig(num_to_keep=config.get("keep", 9))),
        validation_config=ValidationConfig(
            fn=check,
            task_config=ValidationTaskConfig(fn_kwargs={"config": config, "offset": 0.0}),
            ray_remote_kwargs=config.get("remote", {"num_cpus": 0.5}),
        ),
    ).fit()
    found = [metrics.get("acc") for _, metrics in result.best_checkpoints]
    note(config, "result", here.number, json.dumps(found).replace(" ", ""))


def judge_step(checkpoint: Path, config: Config, iteration: int) -> dict[str, Any]:
    """Of a checkpoint of `trainruns.loop`."""
    return {"seen": int((checkpoint / "step").read_text()), "acc": iteration / 10}
