"""Trainings that have been begun, and have done nothing yet."""

from __future__ import annotations

from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.training.as_sweep import sweep_of


def begin_training(folder: RunFolder, spec: TrainSpec, key: str) -> None:
    """Store the record of a training, or check that the stored one is of this spec."""
    swept = sweep_of(spec, "m:body")
    record = SweepRecord(
        digest=swept.digest(),
        key=key,
        seed=0,
        spec=swept.to_stored(),
        scheduled_at=1.0,
        train=spec.to_stored(),
    )
    SweepFolder(folder.store, folder.run_id).write_spec_if_absent(record)
    folder.check_spec(spec)
