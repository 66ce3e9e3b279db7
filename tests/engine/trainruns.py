"""Trainables that start a Ray Train run. Each process notes in `config["log"]` what it does."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
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


def seldom(config: Config) -> None:
    """Steps of 0.05 s, stored only when the trial is asked for a checkpoint; a later attempt ends at once."""
    from ray import train

    rank, begin = train.get_context().get_world_rank(), 0
    if (found := rs.get_checkpoint()) is not None:
        with found as folder:
            begin = int((folder / "step").read_text())
    here = rs.get_context()
    note(config, "worker", here.number, here.attempt, here.rank, here.world_size, begin)
    step = begin
    while begin == 0:
        step += 1
        threading.Event().wait(0.05)
        if rs.should_checkpoint():
            assert rs.should_checkpoint(), "until it is answered"
            note(config, "asked", rank, step)
            with rs.new_checkpoint() as folder:
                (folder / "step").write_text(str(step))
                checkpoint = train.Checkpoint.from_directory(folder) if rank == 0 else None
                train.report({"loss": 1.0, "step": step}, checkpoint=checkpoint)
            note(config, "answered", rank, rs.should_checkpoint())
    train.report({"loss": 0.5, "step": step + 1})


def fit_seldom(config: Config) -> None:
    """A run of `seldom`, whose driver says where it is."""
    import ray
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    note(config, "driver", ray.get_runtime_context().get_node_id())
    DataParallelTrainer(
        seldom,
        train_loop_config=config,
        scaling_config=ScalingConfig(
            num_workers=config["workers"], resources_per_worker={"CPU": config["each"]}
        ),
    ).fit()


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
            num_workers=tuple(config.get("range", ())) or config["workers"],
            resources_per_worker={"CPU": config["each"]},
        ),
        run_config=RunConfig(name="mine", failure_config=FailureConfig(max_failures=config.get("again", 0))),
    )
    try:
        result = trainer.fit()
        with result.checkpoint.as_directory() as folder:
            note(config, "result", here.number, (Path(folder) / "step").read_text())
    finally:
        note(config, "end", here.number, here.attempt, os.getpid())


def until(config: Config) -> None:
    """Reports a checkpoint each 0.1 s until `config["go"]` is there; says when a node is announced to go."""
    import ray
    from ray import train
    from ray.train.collective import broadcast_from_rank_zero

    rank, step = train.get_context().get_world_rank(), 0
    if (found := train.get_checkpoint()) is not None:
        with found.as_directory() as folder:
            step = int((Path(folder) / "step").read_text())
    note(config, "worker", rank, step, ray.get_runtime_context().get_node_id())
    while not broadcast_from_rank_zero(Path(config["go"]).exists()):
        step += 1
        threading.Event().wait(0.1)
        if rs.should_checkpoint():
            note(config, "heard", rank, step)
        with rs.new_checkpoint() as folder:
            (folder / "step").write_text(str(step))
            rs.report({"loss": 1 / step, "step": step}, checkpoint=folder if rank == 0 else None)
        note(config, "step", rank, step)


def fit_until(config: Config) -> None:
    """A run of `until` that bears no failure."""
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    DataParallelTrainer(
        until,
        train_loop_config=config,
        scaling_config=ScalingConfig(
            num_workers=config["workers"],
            resources_per_worker={"CPU": config["each"]},
            placement_strategy="STRICT_SPREAD",
        ),
    ).fit()


def where(config: Config) -> None:
    """Says on which node it is."""
    import ray
    from ray import train

    note(config, "worker", ray.get_runtime_context().get_node_id())
    train.report({"loss": 1.0})


def fit_where(config: Config) -> None:
    """A run of `where`, whose driver says so, too."""
    import ray
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    note(config, "driver", ray.get_runtime_context().get_node_id())
    scaling = ScalingConfig(num_workers=config["workers"], resources_per_worker={"CPU": config["each"]})
    DataParallelTrainer(where, train_loop_config=config, scaling_config=scaling).fit()


def data_loop(config: Config) -> None:
    """Notes the ids that it has of `config["read"]`, and reports twice; with `endless` it reads on."""
    from ray import train

    context = train.get_context()
    rank, trial, attempt = context.get_world_rank(), config["trial"], config["attempt"]
    for name in config["read"]:
        ids = [int(each) for batch in train.get_dataset_shard(name).iter_batches() for each in batch["id"]]
        note(config, name, trial, attempt, rank, ",".join(map(str, ids)))
    reading = threading.Thread(target=_read_on, args=(config,), daemon=True)
    if config.get("endless"):
        reading.start()
        while f"beat {trial} " not in Path(config["log"]).read_text():
            time.sleep(0.02)
    for step in range(2):
        train.report({"loss": config["x"] / (step + 1)})
        if step == 0 and attempt == 1 and rank == 0 and config.get("kill") == "driver":
            os.kill(config["driver"], signal.SIGKILL)
    if config.get("endless"):
        reading.join()


def _read_on(config: Config) -> None:
    from ray import train

    for _ in train.get_dataset_shard("endless").iter_batches():
        pass


class Same:
    """An actor of a pool."""

    def __call__(self, batch: Any) -> Any:
        return batch


def fit_data(config: Config) -> None:
    """A run with data sets: `rows`; `valid`, which each worker reads for itself; `endless`."""
    import ray.data
    from ray.train import DataConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    here = rs.get_context()
    note(config, "begin", here.number, here.attempt, time.time())
    number = here.number

    def beat(batch: Any) -> Any:
        for _ in range(6000):
            note(config, "beat", number, time.time())
            time.sleep(0.1)
        return batch

    rows = ray.data.range(config["rows"], override_num_blocks=2)
    if config.get("file"):
        rows = ray.data.read_parquet(config["file"])
    if config.get("pool"):
        rows = rows.map_batches(Same, concurrency=config["pool"])
    datasets = {
        "rows": rows.random_shuffle() if config.get("shuffles") else rows,
        "valid": lambda: ray.data.range(5).materialize(),  # a task in the trial's own process
        "endless": ray.data.range(1).map_batches(beat),
    }
    names = [*config["read"], *["endless"] * bool(config.get("endless"))]
    own = {"trial": number, "attempt": here.attempt, "driver": os.getpid()}
    try:
        DataParallelTrainer(
            data_loop,
            train_loop_config={**config, **own},
            datasets={name: datasets[name] for name in names},
            dataset_config=DataConfig(datasets_to_split=[name for name in names if name != "valid"]),
            scaling_config=ScalingConfig(
                num_workers=config["workers"], resources_per_worker={"memory": 10_000_000}
            ),
        ).fit()
    finally:
        note(config, "end", number, here.attempt, time.time())
