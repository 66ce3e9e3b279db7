"""raysweep for Prefect: sweeps and the trainings that follow them, as tasks, flows and blocks.

from raysweep_prefect import RayCluster, nightly_sweep

RayCluster(address="https://ray.example.com", token=token).save("prod")
nightly_sweep(spec="flights.yaml", train_spec="flights_train.yaml", key="2026-11-21", cluster="prod")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from raysweep import __version__

if TYPE_CHECKING:
    from raysweep_prefect.blocks import RayCluster, SweepJob, SweepJobRun
    from raysweep_prefect.flows import NightOutcome, nightly_sweep, rollback_champion, sweep_many, train_best
    from raysweep_prefect.hooks import stop_sweeps, stop_sweeps_if_aborted
    from raysweep_prefect.judging import judge
    from raysweep_prefect.parameters import JobSettings
    from raysweep_prefect.programs import tune
    from raysweep_prefect.tasks import gate, sweep, train

_HOME = {
    "JobSettings": "raysweep_prefect.parameters",
    "NightOutcome": "raysweep_prefect.flows",
    "RayCluster": "raysweep_prefect.blocks",
    "SweepJob": "raysweep_prefect.blocks",
    "SweepJobRun": "raysweep_prefect.blocks",
    "gate": "raysweep_prefect.tasks",
    "judge": "raysweep_prefect.judging",
    "nightly_sweep": "raysweep_prefect.flows",
    "rollback_champion": "raysweep_prefect.flows",
    "stop_sweeps": "raysweep_prefect.hooks",
    "stop_sweeps_if_aborted": "raysweep_prefect.hooks",
    "sweep": "raysweep_prefect.tasks",
    "sweep_many": "raysweep_prefect.flows",
    "train": "raysweep_prefect.tasks",
    "train_best": "raysweep_prefect.flows",
    "tune": "raysweep_prefect.programs",
}

__all__ = [
    "JobSettings",
    "NightOutcome",
    "RayCluster",
    "SweepJob",
    "SweepJobRun",
    "__version__",
    "gate",
    "judge",
    "nightly_sweep",
    "rollback_champion",
    "stop_sweeps",
    "stop_sweeps_if_aborted",
    "sweep",
    "sweep_many",
    "train",
    "train_best",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'raysweep_prefect' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """With the names that are imported on first use: `prefect block register -m` looks for blocks here."""
    return sorted({*globals(), *__all__})
