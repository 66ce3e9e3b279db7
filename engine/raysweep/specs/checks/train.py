"""All checks of a training's spec."""

from __future__ import annotations

from raysweep.documents.validation import Problem
from raysweep.specs.checks.command import check_command
from raysweep.specs.train_fields import TrainFields


def check_train(spec: TrainFields) -> None:
    """See that the fields of a training fit together. Raises Problem."""
    check_command(spec)
    if spec.scaling.backend is not None:
        fix = "leave it out: framework says which trainer sets the workers up"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "backend"))
    if spec.scaling.by_config:
        fix = "leave it out, and give num_workers"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "by_config"))
    if spec.scaling.driver is not None:
        fix = "leave it out: the trainable runs in each worker"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "driver"))
    if spec.scaling.metrics != "rank0":
        fix = "leave it out: rank 0's metrics are the training's"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "metrics"))
