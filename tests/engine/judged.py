"""A sweep, a training and a judge of one kind of model: a file with the figures of its folds."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import raysweep as rs

FOLDS = (0.70, 0.72, 0.69, 0.71, 0.68)


def search(config: dict[str, Any]) -> None:
    """A small run: better with each night's `gain`."""
    rs.report({"auc": config["gain"]})


def train(config: dict[str, Any]) -> None:
    """The full model: its folds gain what the config says, or what `luck` says of each."""
    if config.get("waits_s"):
        import time

        _save(config)
        while not rs.should_checkpoint():
            time.sleep(0.1)
    _save(config)


def _save(config: dict[str, Any]) -> None:
    gains = config.get("luck") or [config["gain"]] * len(FOLDS)
    folds = [fold + gain for fold, gain in zip(FOLDS, gains, strict=True)]
    if config.get("shuffled"):
        folds = [0.5 for _ in folds]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.json").write_text(json.dumps(folds))
        rs.report({"auc": sum(folds) / len(folds)}, checkpoint=folder)


def score(model: Path, data: str) -> list[float]:
    """The figures of the model, less what the data make harder."""
    harder = json.loads(Path(data).read_text())
    return [fold - harder for fold in json.loads((model / "model.json").read_text())]


def raising(model: Path, data: str) -> float:
    """A judge that cannot read the data."""
    raise KeyError("holdout")


def mutating(model: Path, data: str) -> float:
    """A judge that writes where it may not."""
    os.remove(model / "model.json")
    return 1.0


def not_a_number(model: Path, data: str) -> float:
    """A judge whose figure is none."""
    return float("nan")
