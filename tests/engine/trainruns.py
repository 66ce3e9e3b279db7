"""Trainables that start a Ray Train run. Each process notes in `config["log"]` what it does."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.trainables import note

Config = dict[str, Any]


def loop(config: Config) -> None:
    """`config["steps"]` reports with a checkpoint each, from the one that the run begins from."""
    from ray import train

    context = train.get_context()
    rank, trial = context.get_world_rank(), config["trial"]
    begin = 0
    if (found := train.get_checkpoint()) is not None:
        with found.as_directory() as folder:
            begin = int((Path(folder) / "step").read_text())
    note(config, "worker", trial, config["attempt"], rank, context.get_world_size(), begin, os.getpid())
    for step in range(begin, config["steps"]):
        _interfere(config, rank, step)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(step + 1))
            checkpoint = train.Checkpoint.from_directory(folder) if rank == 0 else None
            metrics = {"loss": config["x"] / (step + 1), "step": step + 1, "rank": rank}
            train.report(metrics, checkpoint=checkpoint)
    if config.get("waits"):
        threading.Event().wait(600)


def _interfere(config: Config, rank: int, step: int) -> None:
    """At step 2 of the first attempt: kills the driver from rank 0, or rank 1, or stands still."""
    if config["attempt"] != 1 or step != 2 or not config.get("kill"):
        return
    if config["kill"] == "controller":  # the test does; until then the run stands still
        threading.Event().wait(600)
    mark = Path(config["log"] + ".killed")
    if config["kill"] == "driver" and rank == 0:
        # Until the second checkpoint is being stored: then the sweep knows the first.
        while not list(Path(config["log"]).parent.glob("sweeps/*/checkpoints/00000/1*")):
            threading.Event().wait(0.01)
        os.kill(config["driver"], signal.SIGKILL)
        threading.Event().wait(600)
    if config["kill"] == "worker" and rank == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def fit(config: Config) -> None:
    """Starts a run of `config["workers"]` workers that take `config["each"]` CPUs each, and waits for it."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    here = rs.get_context()
    note(config, "begin", here.number, here.attempt, os.getpid())
    own = {"trial": here.number, "attempt": here.attempt, "driver": os.getpid()}
    trainer = DataParallelTrainer(
        loop,
        train_loop_config={**config, **own},
        scaling_config=ScalingConfig(
            num_workers=config["workers"], resources_per_worker={"CPU": config["each"]}
        ),
        run_config=RunConfig(name="mine", failure_config=FailureConfig(max_failures=config.get("again", 0))),
    )
    try:
        result = trainer.fit()
        with result.checkpoint.as_directory() as folder:
            note(config, "result", here.number, (Path(folder) / "step").read_text())
    finally:
        note(config, "end", here.number, here.attempt, os.getpid())
