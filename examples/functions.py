"""Functions with known minima, as trainables: what a search is worth can be seen in seconds."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import raysweep as rs


def branin(config: Mapping[str, float]) -> dict[str, float]:
    """Branin and Hoo, 1972, of `x` from -5 to 10 and `y` from 0 to 15: three minima of 0.398."""
    x, y = config["x"], config["y"]
    a = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return {"loss": a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10}


def machine(config: Mapping[str, object]) -> dict[str, float]:
    """A made-up error of a model with an `optimizer` (sgd or adam), a `width` and a rate `lr`.

    Least, 0.1, for adam with a width of 64 and a rate of 0.003; sgd wants a rate ten times as large.
    """
    best = -2.5 if config["optimizer"] == "adam" else -1.5
    rate = math.log10(float(str(config["lr"]))) - best
    width = math.log2(int(str(config["width"])) / 64)
    return {"loss": 0.1 + 0.2 * (config["optimizer"] != "adam") + 0.3 * rate**2 + 0.05 * width**2}


def pipeline(config: Mapping[str, Any]) -> dict[str, float]:
    """A made-up error of one of two models, with the parameters of the branch that was taken.

    Least, 0.1, for a `svm` on standardised inputs with an rbf kernel, `c` of 1 and `gamma` of 0.1; no
    `forest` is below 0.2.
    """
    match config["model"]:
        case {"forest": {"depth": depth, "trees": trees}}:
            return {"loss": 0.2 + 0.01 * abs(depth - 10) + 0.02 * math.log10(1000 / trees)}
        case {"svm": {"c": c, "kernel": {"rbf": {"gamma": gamma}}}}:
            miss = math.log10(c) ** 2 + (math.log10(gamma) + 1) ** 2
            return {"loss": 0.1 + 0.05 * miss + 0.3 * (config["scale"] != "standard")}
        case _:
            return {"loss": 0.4}


def curve(config: Mapping[str, float], epoch: int) -> dict[str, float]:
    """The loss after some epochs of training: falls towards its end, 0.1 + the distance of `lr` from 0.01.

    The distance is in powers of ten. A smaller `momentum` (0 to 1) is slower to get there, by epochs of fewer
    seconds.
    """
    end = 0.1 + abs(math.log10(config["lr"]) + 2)
    loss = end + 2.0 * math.exp(-epoch * (0.1 + 0.4 * config["momentum"]))
    return {"loss": loss, "epoch_s": 1.0 + 4.0 * config["momentum"]}


def train(config: Mapping[str, float]) -> None:
    """Nine epochs of `curve`, with a checkpoint of each: what a scheduler pauses continues from there.

    A training repeats the configs of a population's best trial: `config_at` has the one of each epoch.
    """
    context = rs.get_context()
    checkpoint = rs.get_checkpoint()
    done = 0
    if checkpoint is not None:
        with checkpoint as folder:
            done = int(Path(folder, "epoch").read_text())
    for epoch in range(done + 1, 10):
        with rs.new_checkpoint() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            rs.report(curve(context.config_at(epoch - 1, config), epoch), checkpoint=folder, wait=True)


def served(config: Mapping[str, float]) -> dict[str, float]:
    """A made-up model of `depth` layers of a `width`: its error, how long an answer takes, what it takes up.

    More of both errs less, down to 0.05, and takes longer: 20 ms leave an error of 0.086.
    """
    depth, width = config["depth"], config["width"]
    size = depth * width
    return {
        "error": 0.05 + 0.5 / math.sqrt(size),
        "latency_ms": 0.2 * depth + size / 10,
        "memory_mb": size + width**2 / 8,
        "layers": depth,
    }


def trained(config: Mapping[str, float]) -> dict[str, float]:
    """A made-up error of a network of a `width`, trained at a rate `lr`, and the seconds that it took.

    A rate of 0.01 is the best. From a width of 128 on it errs as little, 0.1, and takes longer.
    """
    lack = max(0.0, 1.0 - config["width"] / 128)
    loss = 0.1 + 0.2 * (math.log10(config["lr"]) + 2) ** 2 + 0.5 * lack
    return {"loss": loss, "seconds": 0.01 * config["width"] ** 1.5}


def noisy(config: Mapping[str, Any]) -> dict[str, float]:
    """The error of `machine`, which varies with the `seed` by 0.2."""
    return {"loss": machine(config)["loss"] + random.Random(config["seed"]).gauss(0, 0.2)}


def fold(config: Mapping[str, Any], number: int) -> dict[str, float]:
    """The error of `machine` on one of ten folds, some of which are harder than others for all configs."""
    return {"loss": machine(config)["loss"] + random.Random(number).gauss(0, 0.2)}


def folds(config: Mapping[str, Any]) -> None:
    """Ten folds, with a report of each."""
    for number in range(1, 11):
        rs.report(fold(config, number), wait=True)


def is_certain(history: list[dict[str, Any]]) -> bool:
    """Whether the errors of seven folds or more are all below 0.2, for `stop.trial_if`."""
    return len(history) >= 7 and all(report["loss"] < 0.2 for report in history)
