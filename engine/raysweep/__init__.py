"""raysweep: hyperparameter sweeps as pipeline steps on Ray.

Names are imported when they are first used, so that `import raysweep` costs nothing and needs no Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysweep.errors import (
        CheckpointDamagedError,
        ClusterAuthError,
        ClusterCertificateError,
        ClusterError,
        ClusterLostError,
        ClusterRequestError,
        ClusterServerError,
        ClusterUnreachableError,
        FencedError,
        InfeasibleResourcesError,
        JobExistsError,
        JobFailedError,
        JobNotFoundError,
        JobStoppedError,
        JournalDamagedError,
        MetricNeverReportedError,
        RaysweepError,
        SegmentExistsError,
        SpecChangedError,
        SpecError,
        StorageError,
        StorageNotSharedError,
        StorageNotWritableError,
        StorageUnavailableError,
        SweepDamagedError,
        SweepFailedError,
        SweepHeldError,
        SweepInterrupted,
        SweepNotFoundError,
        TokenMissingError,
        TokenRefusedError,
        TrainableImportError,
        TrainingFailedError,
        TrialStopped,
    )
    from raysweep.outcome import SweepOutcome, SweepProgress, TrainOutcome, TrialOutcome
    from raysweep.run import run_sweep, run_training
    from raysweep.spec.identity import sweep_id
    from raysweep.spec.resources import Resources, Scaling
    from raysweep.spec.sweep import SweepSpec
    from raysweep.spec.train import TrainSpec
    from raysweep.trial import get_checkpoint, get_context, report, should_checkpoint

__version__ = "0.1.0"

_HOMES: dict[str, tuple[str, ...]] = {
    "raysweep.errors": (
        "CheckpointDamagedError",
        "ClusterAuthError",
        "ClusterCertificateError",
        "ClusterError",
        "ClusterLostError",
        "ClusterRequestError",
        "ClusterServerError",
        "ClusterUnreachableError",
        "FencedError",
        "InfeasibleResourcesError",
        "JobExistsError",
        "JobFailedError",
        "JobNotFoundError",
        "JobStoppedError",
        "JournalDamagedError",
        "MetricNeverReportedError",
        "RaysweepError",
        "SegmentExistsError",
        "SpecChangedError",
        "SpecError",
        "StorageError",
        "StorageNotSharedError",
        "StorageNotWritableError",
        "StorageUnavailableError",
        "SweepDamagedError",
        "SweepFailedError",
        "SweepHeldError",
        "SweepInterrupted",
        "SweepNotFoundError",
        "TokenMissingError",
        "TokenRefusedError",
        "TrainableImportError",
        "TrainingFailedError",
        "TrialStopped",
    ),
    "raysweep.outcome": ("SweepOutcome", "SweepProgress", "TrainOutcome", "TrialOutcome"),
    "raysweep.run": ("run_sweep", "run_training"),
    "raysweep.spec.identity": ("sweep_id",),
    "raysweep.spec.resources": ("Resources", "Scaling"),
    "raysweep.spec.sweep": ("SweepSpec",),
    "raysweep.spec.train": ("TrainSpec",),
    "raysweep.trial": ("get_checkpoint", "get_context", "report", "should_checkpoint"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022
    "__version__",
    "CheckpointDamagedError",
    "ClusterAuthError",
    "ClusterCertificateError",
    "ClusterError",
    "ClusterLostError",
    "ClusterRequestError",
    "ClusterServerError",
    "ClusterUnreachableError",
    "FencedError",
    "InfeasibleResourcesError",
    "JobExistsError",
    "JobFailedError",
    "JobNotFoundError",
    "JobStoppedError",
    "JournalDamagedError",
    "MetricNeverReportedError",
    "RaysweepError",
    "Resources",
    "Scaling",
    "SegmentExistsError",
    "SpecChangedError",
    "SpecError",
    "StorageError",
    "StorageNotSharedError",
    "StorageNotWritableError",
    "StorageUnavailableError",
    "SweepDamagedError",
    "SweepFailedError",
    "SweepHeldError",
    "SweepInterrupted",
    "SweepNotFoundError",
    "SweepOutcome",
    "SweepProgress",
    "SweepSpec",
    "TokenMissingError",
    "TokenRefusedError",
    "TrainOutcome",
    "TrainSpec",
    "TrainableImportError",
    "TrainingFailedError",
    "TrialOutcome",
    "TrialStopped",
    "get_checkpoint",
    "get_context",
    "report",
    "run_sweep",
    "run_training",
    "should_checkpoint",
    "sweep_id",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'raysweep' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
