"""raysweep's Airflow provider: a sweep as a task, deferred while it runs, that survives what may happen.

    from raysweep_airflow import GateOperator, SweepOperator, TrainOperator

    sweep = SweepOperator(task_id="sweep", spec="specs/flights.yaml")
    gate = GateOperator(task_id="gate", spec="specs/flights.yaml", outcome=sweep.output, gate={"seeds": 3})
    TrainOperator(task_id="train", spec="specs/train.yaml", outcome=gate.output)

Neither this package nor Airflow's environment needs Ray, but for `address="local"`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysweep_airflow.approval import ApproveOperator
    from raysweep_airflow.hooks import RaySweepHook
    from raysweep_airflow.judging import JudgeOperator
    from raysweep_airflow.night_alert import deadline_alert
    from raysweep_airflow.operators import GateOperator, SweepOperator, TrainOperator
    from raysweep_airflow.results import top_k
    from raysweep_airflow.retries import retry_policy
    from raysweep_airflow.triggers import SweepTrigger

__version__ = "0.1.0"

_HOME = {
    "ApproveOperator": "approval",
    "GateOperator": "operators",
    "JudgeOperator": "judging",
    "RaySweepHook": "hooks",
    "SweepOperator": "operators",
    "SweepTrigger": "triggers",
    "TrainOperator": "operators",
    "deadline_alert": "night_alert",
    "retry_policy": "retries",
    "top_k": "results",
}

__all__ = [
    "ApproveOperator",
    "GateOperator",
    "JudgeOperator",
    "RaySweepHook",
    "SweepOperator",
    "SweepTrigger",
    "TrainOperator",
    "__version__",
    "deadline_alert",
    "retry_policy",
    "top_k",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'raysweep_airflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"raysweep_airflow.{_HOME[name]}"), name)
    globals()[name] = value
    return value
