"""The callbacks of a training: stored masked, free to change, checked before they travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.cli.commands.deliver import deliver
from raysweep.errors import SpecError
from raysweep.hooks import Callback
from raysweep.hooks.spec import CallbackSpec
from raysweep.jobs.code.portable import check_portable
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.specs.outline import outline
from raysweep.storage.objects.opening import open_store
from raysweep.training.as_sweep import sweep_of
from raysweep.training.from_outcome import train_spec_with
from tests.begun_trainings import begin_training

SECRET = {"webhook": {"url": "https://example.org/token"}}


class Mine(Callback):
    """An object, as Python gives it."""

    def on_report(self, event: object) -> None:
        """Has a hook."""


def of(*callbacks: Any, **fields: Any) -> TrainSpec:
    return TrainSpec(name="full", trainable="examples.flights:train_full", callbacks=callbacks, **fields)


def test_a_training_is_the_same_with_other_callbacks(tmp_path: Path) -> None:
    assert of("tensorboard").digest() == of().digest()
    assert outline(of("tensorboard")) == outline(of())
    folder = RunFolder(open_store(tmp_path), "full-0123456789")
    begin_training(folder, of("tensorboard"), "k")
    folder.check_spec(of(SECRET))
    assert folder.has(of())


def test_no_secret_of_a_callback_is_stored() -> None:
    assert of(SECRET).to_stored()["callbacks"] == [{"webhook": CallbackSpec.of(SECRET).stored()["webhook"]}]
    assert "token" not in str(of(SECRET).to_stored())
    assert "callbacks" not in of().to_stored()


def test_the_sweep_of_a_training_and_the_training_of_a_sweep_have_its_callbacks() -> None:
    mine = Mine()
    assert sweep_of(of(mine), "m:body").callbacks[0].held is mine
    assert train_spec_with(of(mine), {"rounds": 3}).callbacks[0].held is mine


def test_a_callback_that_cannot_travel_is_refused_before_a_job_is_submitted() -> None:
    with pytest.raises(SpecError, match="a Mine object cannot be sent to a job"):
        check_portable(of(Mine()))
    with pytest.raises(SpecError, match="would be stored with the job's request on the cluster"):
        check_portable(of(SECRET))
    check_portable(of("tensorboard"))


def test_deliver_knows_a_training(tmp_path: Path) -> None:
    begin_training(RunFolder(open_store(tmp_path), "full-0123456789"), of("tensorboard"), "k")
    with pytest.raises(SpecError, match="full-0123456789 has not ended: its callbacks are called as it runs"):
        deliver("full", str(tmp_path), 1.0)
