"""The ways in which Ray Tune and Ray Train V2 store a checkpoint, to compare with. Imports Ray Train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.train import Checkpoint
from ray.train._internal.storage import StorageContext as TuneStorage
from ray.train.v2._internal.execution.storage import StorageContext as TrainStorage


def persist_as_tune(source: Path, run: str, **place: Any) -> Checkpoint:
    """Store a directory as a trial of Ray Tune does; `place`: `storage_path`, `storage_filesystem`."""
    storage = TuneStorage(experiment_dir_name=run, trial_dir_name="trial", **place)
    storage.current_checkpoint_index = 0
    return storage.persist_current_checkpoint(Checkpoint.from_directory(str(source)))


def persist_as_train(source: Path, run: str, **place: Any) -> Checkpoint:
    """Store a directory as a worker of Ray Train V2 does; `place` as in `persist_as_tune`."""
    storage = TrainStorage(experiment_dir_name=run, **place)
    return storage.persist_current_checkpoint(Checkpoint.from_directory(str(source)), "checkpoint")
