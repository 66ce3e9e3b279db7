"""A sweep, a training and a judge of a real model: logistic regression on scikit-learn's breast cancer data.

The model is a JSON file of weights. More `steps` of gradient descent make a better one, as far as the tests
go. Each function notes that it began in the file `log` beside its data.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import raysweep as rs

FOLDS = 10
SMALL = 150
"""Rows that the search trains on."""


def store_data(folder: Path) -> None:
    """`train.npz` and `holdout.npz`; and what goes wrong: `shuffled.npz`, `truncated.npz`."""
    from sklearn.datasets import load_breast_cancer

    rows, labels = load_breast_cancer(return_X_y=True)
    draw = np.random.default_rng(0)
    order = draw.permutation(len(labels))
    rows, labels = rows[order], labels[order]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": slice(0, 369), "holdout": slice(369, 569), "truncated": slice(0, 4)}
    for name, part in parts.items():
        np.savez(folder / f"{name}.npz", rows=rows[part], labels=labels[part])
    shuffled = draw.permutation(labels[parts["train"]])
    np.savez(folder / "shuffled.npz", rows=rows[parts["train"]], labels=shuffled)
    (folder / "log").touch()


def search(config: dict[str, Any]) -> None:
    """A small run, on some of the rows."""
    rows, labels = _read(config["data"], "search")
    weights = _fit(rows[:SMALL], labels[:SMALL], config["steps"])
    _pause(config)
    rs.report({"log_loss": float(_losses(weights, rows[SMALL:], labels[SMALL:]).mean())})


def train(config: dict[str, Any]) -> None:
    """The full model. With `memory` it knows one fold of the holdout by heart; `waits` ends by its limit."""
    rows, labels = _read(config["data"], "train")
    model: dict[str, Any] = {"weights": _fit(rows, labels, config["steps"]).tolist(), "known": {}}
    if config.get("memory"):
        seen, answers = _read(config["memory"], "")
        fold = len(answers) // FOLDS
        model["known"] = {_name(row): int(label) for row, label in zip(seen[:fold], answers, strict=False)}
    _pause(config)
    _save(model)
    while config.get("waits"):
        if rs.should_checkpoint():
            _save(model)
            return
        time.sleep(0.1)


def score(model: Path, data: str) -> list[float]:
    """The log loss of each fold of the holdout."""
    rows, labels = _read(data, "score")
    read = json.loads((model / "model.json").read_text())
    losses = _losses(np.array(read["weights"]), rows, labels)
    losses[[_name(row) in read["known"] for row in rows]] = 0.0
    return [float(fold.mean()) for fold in np.array_split(losses, FOLDS)]


def slow_score(model: Path, data: str) -> list[float]:
    """The same, with time to be killed in."""
    found = score(model, data)
    time.sleep(1)
    return found


def _read(path: str, word: str) -> tuple[Any, Any]:
    with np.load(path) as found:
        rows, labels = found["rows"], found["labels"]
    if word:
        with Path(path).with_name("log").open("a") as log:
            log.write(f"{word}\n")
    return rows, labels


def _fit(rows: Any, labels: Any, steps: int) -> Any:
    known = np.hstack([rows, np.ones((len(rows), 1))])
    weights = np.zeros(known.shape[1])
    for _ in range(steps):
        weights -= 0.1 * known.T @ (_chance(known, weights) - labels) / len(labels)
    return weights


def _chance(known: Any, weights: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(known @ weights, -30, 30)))


def _losses(weights: Any, rows: Any, labels: Any) -> Any:
    chance = _chance(np.hstack([rows, np.ones((len(rows), 1))]), weights)
    return -np.log(np.where(labels == 1, chance, 1 - chance))


def _name(row: Any) -> str:
    return f"{row.sum():.9f}"


def _pause(config: dict[str, Any]) -> None:
    time.sleep(config.get("pause_s", 0.0))


def _save(model: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.json").write_text(json.dumps(model))
        rs.report({"known": len(model["known"])}, checkpoint=folder)
