"""The training's spec from a sweep's outcome: it begins from no checkpoint but that sweep's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.errors import SpecError
from raysweep.specs import TrainSpec
from raysweep.training.from_outcome import train_spec_for
from tests.unit.pages.sweeps import store

TRAIN = TrainSpec(trainable="m:f", name="full")


def test_it_begins_from_the_best_trials_checkpoint(tmp_path: Path) -> None:
    folder, _ = store(tmp_path, num_samples=2)
    outcome = folder.read_outcome()
    assert outcome is not None
    spec = train_spec_for(TRAIN, outcome, is_warm=True)
    assert spec.warm_start_checkpoint == outcome.best.checkpoint_uri
    assert train_spec_for(TRAIN, outcome).warm_start_checkpoint is None


@pytest.mark.parametrize(
    "place",
    [
        "{home}",
        "{other}/checkpoints/00000/1",
        "{own}/../private",
        "{own}/checkpoints/../../private",
        "../private",
        "s3://bucket/x",
    ],
)
def test_another_place_that_an_outcome_names_is_refused(place: str, tmp_path: Path) -> None:
    folder, outcome = store(tmp_path, num_samples=2)
    uri = place.format(home=tmp_path / "private", other=tmp_path / "other", own=folder.uri)
    best = outcome.best.model_copy(update={"checkpoint_uri": uri})
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    folder.write_outcome_if_absent(outcome.model_copy(update={"best": best}))
    stored = folder.read_outcome()
    assert stored is not None
    with pytest.raises(SpecError, match=r"^warm_start_checkpoint: .* is no checkpoint of that sweep"):
        train_spec_for(TRAIN, stored, is_warm=True)
