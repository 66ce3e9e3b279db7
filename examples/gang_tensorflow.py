"""Trains a small model with MultiWorkerMirroredStrategy: TF_CONFIG stands when this is called."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import raysweep as rs


def train(config: dict[str, Any]) -> None:
    """Called in each worker, with the same config and seed."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, epochs = rs.get_context().world_rank, config.get("epochs", 3)
    x = tf.random.stateless_normal((256, 4), seed=(1, rank))  # each worker has data of its own
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    with strategy.scope():  # what each worker subtracts from them is averaged
        weights = tf.Variable(tf.zeros((4, 1)), aggregation=tf.VariableAggregation.MEAN)
    epoch = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(weights=weights, epoch=epoch)
    if (found := rs.get_checkpoint()) is not None:
        with found as folder:
            checkpoint.read(str(folder / "model")).expect_partial()

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        weights.assign_sub(config["lr"] * tape.gradient(loss, weights))
        return loss

    @tf.function
    def run() -> tf.Tensor:
        return strategy.run(step)

    while int(epoch) < epochs:
        for _ in range(5):
            loss = run()
        epoch.assign_add(1)
        with rs.new_checkpoint() as folder:
            checkpoint.write(str(folder / "model"))  # in every rank; rank 0's is kept
            rs.report({"loss": float(loss), "weight": float(weights[0, 0])}, checkpoint=folder)
