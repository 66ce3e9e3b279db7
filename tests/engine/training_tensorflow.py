"""What the workers of a training with TensorFlow run, for the tests of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import raysweep as rs
from tests.engine.trainables import note

ROWS, BATCH, MOMENTUM = 1792, 128, 0.9


def digits(config: dict[str, Any]) -> None:
    """A network of one hidden layer learns scikit-learn's digits, by `MultiWorkerMirroredStrategy`.

    A batch is the same however many workers share it. At each step each worker notes its own gradient, that
    of all, and the weights; every fifth step is stored.
    """
    import tensorflow as tf
    from sklearn.datasets import load_digits

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    context = rs.get_context()
    assert strategy.num_replicas_in_sync == context.world_size
    images, labels = load_digits(return_X_y=True)
    x = tf.constant(images[:ROWS] / 16.0, tf.float32)
    y = tf.constant(labels[:ROWS], tf.int32)

    def make(shape: tuple[int, ...], seed: int, scale: float) -> Any:
        first = scale * tf.random.stateless_normal(shape, seed=(7, seed))
        return tf.Variable(first, aggregation=tf.VariableAggregation.MEAN)

    with strategy.scope():
        weights = [make((64, 32), 1, 0.1), make((32,), 2, 0.0), make((32, 10), 3, 0.1), make((10,), 4, 0.0)]
        moving = [make(tuple(each.shape), 0, 0.0) for each in weights]
    done = tf.Variable(0)
    state = tf.train.Checkpoint(weights=weights, moving=moving, done=done)
    if (found := rs.get_checkpoint()) is not None:
        with found as folder:
            state.read(str(folder / "state")).assert_consumed()

    def logits(x: Any) -> Any:
        return tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3]

    def learn(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits(x))
            loss = tf.reduce_mean(each)
        own = tape.gradient(loss, weights)
        of_all = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, own)
        for weight, speed, gradient in zip(weights, moving, of_all, strict=True):
            speed.assign(MOMENTUM * speed + gradient)
            weight.assign_sub(config["lr"] * speed)
        return loss, own[0], of_all[0]

    @tf.function
    def run(x: Any, y: Any) -> Any:
        return strategy.run(learn, (x, y))

    note(config, "begin", context.rank, context.world_size, int(done))
    while int(done) < config["steps"]:
        step = int(done)
        if step == config.get("dies_at") and context.rank == 1 and not Path(config["died"]).exists():
            Path(config["died"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        while step == config.get("waits_at") and not Path(config["go"]).exists():
            time.sleep(0.05)
        begin = step * BATCH % ROWS
        part = slice(begin + context.rank, begin + BATCH, context.world_size)
        loss, own, of_all = run(x[part], y[part])
        done.assign_add(1)
        sums = (float(tf.reduce_sum(each * each)) for each in (own, of_all, weights[0]))
        note(config, "step", step, context.rank, *map(float.hex, sums))
        if int(done) % 5 == 0:
            hits = tf.equal(tf.argmax(logits(x), axis=1, output_type=tf.int32), y)
            metrics = {"loss": float(loss), "accuracy": float(tf.reduce_mean(tf.cast(hits, tf.float32)))}
            with rs.new_checkpoint() as folder:
                state.write(str(folder / "state"))  # in every rank; rank 0's is kept
                np.savez(folder / "weights.npz", *(each.numpy() for each in weights))
                rs.report(metrics, checkpoint=folder if context.rank == 0 else None)
            note(config, "stored", context.rank, int(done))
