"""From a sweep's outcome to the spec of the full-scale training."""

from __future__ import annotations

from raysweep.errors import SweepFailedError
from raysweep.outcome import SweepOutcome
from raysweep.spec import TrainSpec


def train_spec_for(train: TrainSpec, outcome: SweepOutcome, *, is_warm: bool = False) -> TrainSpec:
    """The training spec with the sweep's best config under it; what `train.config` itself says wins.

    Args:
        train: The spec as written; its `config` holds overrides.
        outcome: A sweep that ended with a best trial.
        is_warm: Begin from the best trial's checkpoint, where it has one and the spec names no other.

    Raises:
        SweepFailedError: The sweep has no best trial.
    """
    best = outcome.best
    if best is None:
        raise SweepFailedError(outcome)
    fields = train.to_dict() | {"trainable": train.trainable, "config": {**best.config, **train.config}}
    if is_warm and train.warm_start_checkpoint is None and best.checkpoint_uri is not None:
        fields["warm_start_checkpoint"] = best.checkpoint_uri
    return TrainSpec.from_any(fields)
