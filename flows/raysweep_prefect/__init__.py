"""raysweep for Prefect: a sweep and the training that follows it, as tasks of a flow.

from raysweep_prefect import nightly_sweep

nightly_sweep(spec="examples/flights.yaml", train="examples/flights_train.yaml", key="2026-11-21")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from raysweep import __version__

if TYPE_CHECKING:
    from raysweep_prefect.flows import NightOutcome, nightly_sweep
    from raysweep_prefect.tasks import gate, sweep, train

_HOME = {
    "NightOutcome": "raysweep_prefect.flows",
    "gate": "raysweep_prefect.tasks",
    "nightly_sweep": "raysweep_prefect.flows",
    "sweep": "raysweep_prefect.tasks",
    "train": "raysweep_prefect.tasks",
}

__all__ = ["NightOutcome", "__version__", "gate", "nightly_sweep", "sweep", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'raysweep_prefect' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
