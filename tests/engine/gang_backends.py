"""Trainables of several ranks that talk through TensorFlow or Horovod, for the tests of these backends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import ray

import raysweep as rs
from tests.engine.trainables import note

Config = dict[str, Any]


def _note(config: Config, *words: object) -> None:
    here = rs.get_context()
    note(config, words[0], here.number, here.attempt, here.rank, *words[1:])


def _hurt(config: Config, when: str) -> None:
    """What `config["hurt"]` says, to rank 1 of trial 0 in its first attempt."""
    here = rs.get_context()
    if config.get("hurt") != when or (here.number, here.attempt, here.rank) != (0, 1, 1):
        return
    if when == "raises":
        raise ValueError("boom")
    os.kill(os.getpid(), signal.SIGKILL)


def _train(config: Config, add_up: Callable[[float], float], address: str) -> None:
    """Four steps, in each of which the ranks add up a number, with a checkpoint at each."""
    begin = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            begin = int((folder / "step").read_text())
    _note(config, "begin", begin, os.getpid(), address)
    for step in range(begin, 4):
        if step == 2:
            _hurt(config, "raises")
            _hurt(config, "dies")
        total = add_up(float(10 ** rs.get_context().rank))
        with rs.new_checkpoint() as folder:
            (folder / "step").write_text(str(step + 1))
            rs.report({"loss": config["x"], "total": total, "step": step + 1}, checkpoint=folder, wait=True)
        add_up(0.0)  # rank 0's checkpoint is stored


def tensorflow(config: Config) -> None:
    """With TensorFlow: see `_train`."""
    import tensorflow as tf

    _hurt(config, "never comes")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    own = tf.Variable(0.0)

    def step() -> Any:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own.read_value())

    @tf.function
    def run() -> Any:
        return strategy.run(step)

    def add_up(value: float) -> float:
        own.assign(value)
        return float(run())

    _train(config, add_up, ",".join(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]))


def horovod(config: Config) -> None:
    """With Horovod: see `_train`."""
    import horovod.torch as hvd
    import torch

    _hurt(config, "never comes")
    hvd.init()
    here = rs.get_context()
    assert (hvd.rank(), hvd.size(), hvd.local_rank()) == (here.rank, here.world_size, here.local_rank)

    def add_up(value: float) -> float:
        return float(hvd.allreduce(torch.tensor(value, dtype=torch.float64), op=hvd.Sum))

    _train(config, add_up, os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])


def tensorflow_example(config: Config) -> None:
    """`examples/gang_tensorflow.py`, which notes its place and TF_CONFIG."""
    from examples.gang_tensorflow import train

    here, told = rs.get_context(), json.loads(os.environ["TF_CONFIG"])
    task = told["task"]
    _note(
        config,
        "told",
        here.node_rank,
        here.local_rank,
        task["type"],
        task["index"],
        *told["cluster"]["worker"],
    )
    train(config)


def horovod_places(config: Config) -> None:
    """Notes the node, and where Horovod says that the rank is; reports what the ranks add up."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    here = rs.get_context()
    own = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
    _note(config, "told", here.node_rank, here.local_rank, *own, ray.get_runtime_context().get_node_id())
    total = hvd.allreduce(torch.tensor(10.0**here.rank, dtype=torch.float64), op=hvd.Sum)
    rs.report({"loss": config["x"], "total": float(total)})
