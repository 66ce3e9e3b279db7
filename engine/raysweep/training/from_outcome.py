"""Makes the spec of the full-scale training from a sweep's outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raysweep.documents.stored_paths import to_reference
from raysweep.documents.validation import show
from raysweep.errors import SpecError, SweepFailedError
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.specs import TrainSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.scheduled_config import ScheduledConfig
from raysweep.storage.checkpoints.addresses import parse_reference
from raysweep.training.carrying import carried_config
from raysweep.training.model_card import source_tags


def train_spec_for(train: TrainSpec, outcome: SweepOutcome, *, is_warm: bool = False) -> TrainSpec:
    """The training spec with the sweep's best config under it; what `train.config` itself says wins.

    Args:
        train: The spec as written; its `config` holds overrides.
        outcome: A sweep that ended with a best trial.
        is_warm: Begin from the best trial's checkpoint, where it has one and the spec names no other.

    Raises:
        SweepFailedError: The sweep has no best trial.
        SpecError: Its checkpoint is none of the sweep's own.
    """
    best = outcome.found_best
    if best is None:
        raise SweepFailedError(outcome)
    uri = best.checkpoint_uri if is_warm else None
    if uri is not None and parse_reference(to_reference(outcome.uri, uri)) is None:
        problem = f"the sweep's best trial names {show(uri)}, which is no checkpoint of that sweep"
        raise SpecError("warm_start_checkpoint", problem, "check what is there, and name it in the spec")
    return train_spec_of(train, outcome, best, uri)


def train_spec_of(
    train: TrainSpec, outcome: SweepOutcome, best: TrialOutcome, checkpoint_uri: str | None = None
) -> TrainSpec:
    """The training spec with the config of a trial, carried to the training's scale.

    Args:
        train: The spec as written.
        outcome: The sweep's, with all its trials.
        best: The trial.
        checkpoint_uri: A checkpoint to begin from, if the spec names none.

    Raises:
        SpecError, StorageError: As `carried_config`.
    """
    carried = carried_config(train, outcome, best)
    tags = source_tags(outcome, best)
    if carried is None:
        return train_spec_with(train, best.config, checkpoint_uri, tags, best.schedule)
    if best.schedule:
        problem = "the sweep's best trial was trained with several configs in turn, which are not carried"
        raise SpecError("scale", problem, "leave scale and transfer out, or use another scheduler")
    return train_spec_with(train, carried.config, checkpoint_uri, tags, carried=carried)


def train_spec_with(
    train: TrainSpec,
    config: Mapping[str, Any],
    checkpoint_uri: str | None = None,
    tags: Mapping[str, str] | None = None,
    schedule: Sequence[ScheduledConfig] = (),
    carried: CarriedConfig | None = None,
) -> TrainSpec:
    """The training spec with a config and tags under its own; a checkpoint to begin from if it names none.

    So with a schedule: what the spec's own `config` holds wins in each of its configs, and its own schedule
    over this one.
    """
    # Which may be functions and objects.
    given = {"trainable": train.trainable, "datasets": train.datasets, "callbacks": train.callbacks}
    fields = train.to_dict() | given | {"config": {**config, **train.config}}
    fields["tags"] = {**(tags or {}), **train.tags}
    if carried is not None:
        # What was carried is said once: the spec's config is what came of it.
        fields |= {"carried": carried, "transfer": {}}
    if train.warm_start_checkpoint is None and checkpoint_uri is not None:
        fields["warm_start_checkpoint"] = checkpoint_uri
    if schedule and not train.schedule:
        fields["schedule"] = [
            {"from": each.start, "config": {**each.config, **train.config}} for each in schedule
        ]
    return TrainSpec.from_any(fields)
