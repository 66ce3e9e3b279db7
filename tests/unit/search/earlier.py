"""Earlier sweeps that a search starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.objects.opening import open_store

SPACE = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "depth": {"choice": [4, 6, 8]},
    "leaves": {"qrandint": [8, 64, 8]},
    "rows": 100,
}


def make_spec(storage: Path, **fields: Any) -> SweepSpec:
    plain = {
        "name": "flights",
        "trainable": "m:f",
        "param_space": SPACE,
        "metric": "auc",
        "mode": "max",
        "num_samples": 12,
        "seed": 3,
        "search": {"tpe": {"n_startup_trials": 4}},
        "storage_path": str(storage),
    }
    return SweepSpec.model_validate(plain | fields)


def add_sweep(storage: Path, key: str, configs: list[dict[str, Any]], at: float, **fields: Any) -> str:
    """A sweep that has ended; the first config is its best."""
    trials = tuple(
        TrialOutcome(
            trial_id=f"{number:05d}", number=number, state="completed", config=config, score=0.9 - number / 10
        )
        for number, config in enumerate(configs)
    )
    name = sweep_id("flights", key)
    outcome = SweepOutcome(
        sweep_id=name,
        status="completed",
        **{"name": "flights", "metric": "auc", "mode": "max", **fields},
        best=trials[0],
        trials=trials,
        started_at=at,
        ended_at=at + 1,
    )
    SweepFolder(open_store(storage), name).write_outcome_if_absent(outcome)
    import os

    os.utime(storage / name / "outcome.json", (at, at))
    return name


def config(**fields: Any) -> dict[str, Any]:
    return {"lr": 0.01, "depth": 6, "leaves": 16, "rows": 50} | fields
