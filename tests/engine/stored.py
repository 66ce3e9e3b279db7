"""What `tests/golden/stored.zip` holds: two sweeps and a training (see `tests/golden/record_stored.py`).

The objects lie under one S3 prefix, since what is recorded of checkpoints has their whole address. The
trainables, with their docstrings, are never edited: in a script they are identified by their source.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs

STORAGE = "s3://bucket/stored"
PAUSE = "RAYSWEEP_STORED_PAUSE_S"
STEPS = 4


def steps(config: dict[str, Any]) -> None:
    """Four reports with a checkpoint each; goes on from the one it is given."""
    at = 0
    if checkpoint := rs.get_checkpoint():
        with checkpoint as folder:
            at = int((folder / "at").read_text())
    for step in range(at + 1, STEPS + 1):
        time.sleep(float(os.environ.get(PAUSE, "0")))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at").write_text(str(step))
            rs.report({"loss": config["x"] + 1 / step, "from": at}, checkpoint=folder)


def once(config: dict[str, Any]) -> dict[str, float]:
    """One result."""
    return {"loss": config["x"]}


def sweep_spec(name: str) -> rs.SweepSpec:
    """`going` is killed in its middle, `ended` is not; one trial at a time: nothing is left to chance."""
    return rs.SweepSpec(
        name=name,
        trainable=steps,
        param_space={"x": {"uniform": [0, 1]}, "kind": {"choice": ["a", "b"]}},
        metric="loss",
        mode="min",
        num_samples=14,
        seed=5,
        search={"tpe": {"n_startup_trials": 4}},
        scheduler={"asha": {"max_t": STEPS, "grace_period": 1, "reduction_factor": 2}},
        max_concurrent_trials=1,
        checkpoint={"keep_last": 1, "keep_best": True},
        storage_path=STORAGE,
    )


def train_spec() -> rs.TrainSpec:
    """A training that ended."""
    return rs.TrainSpec(
        name="trained", trainable=once, config={"x": 0.25}, scaling={"num_workers": 1}, storage_path=STORAGE
    )


def main() -> None:
    """`python -m tests.engine.stored sweep NAME` or `… training`: run it, print its outcome."""
    what, *names = sys.argv[1:]
    outcome: rs.SweepOutcome | rs.TrainOutcome
    if what == "sweep":
        outcome = rs.run_sweep(sweep_spec(names[0]), key="k", num_cpus=1)
    else:
        outcome = rs.run_training(train_spec(), key="k")
    print(outcome.to_json(), flush=True)


if __name__ == "__main__":
    main()
