"""The documents of a training run: one spec, one end."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.errors import SpecChangedError, StorageError
from raysweep.outcome import TrainOutcome
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training

NOW = 1_800_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(open_store(tmp_path), "t-1")


def spec(**fields: object) -> TrainSpec:
    return TrainSpec.from_any({"name": "t", "trainable": "examples.quick:steps", **fields})


def test_a_changed_spec_is_refused_with_each_difference(folder: RunFolder) -> None:
    begin_training(folder, spec(config={"lr": 0.1, "deep": {"er": 1}}), "k")
    begin_training(
        folder, spec(config={"lr": 0.1, "deep": {"er": 1}}, failure={"max_failures": 5}, tags={"a": "b"}), "k"
    )
    with pytest.raises(SpecChangedError) as caught:
        begin_training(
            folder, spec(config={"lr": 0.2, "deep": {"er": 1}, "new": "x"}, framework="torch"), "k"
        )
    assert sorted(caught.value.diff) == [
        "config.lr: 0.1 -> 0.2",
        'config.new: (absent) -> "x"',
        'framework: "data_parallel" -> "torch"',
    ]


def test_the_outcome_is_written_once_and_a_damaged_one_is_named(folder: RunFolder, tmp_path: Path) -> None:
    def outcome(loss: float) -> TrainOutcome:
        return TrainOutcome(
            run_id="t-1", name="t", status="completed", metrics={"loss": loss}, started_at=NOW, ended_at=NOW
        )

    folder.write_outcome(outcome(1.0))
    folder.write_outcome(outcome(2.0))
    assert folder.read_outcome() == outcome(1.0)
    (tmp_path / "t-1" / "train_outcome.json").write_text("{")
    with pytest.raises(StorageError, match=r"train_outcome\.json"):
        folder.read_outcome()


def test_checkpoints_that_nothing_refers_to_are_deleted(folder: RunFolder, tmp_path: Path) -> None:
    for name in ("checkpoint_1", "checkpoint_2", "journal"):
        (tmp_path / "t-1" / name).mkdir(parents=True)
        (tmp_path / "t-1" / name / "file").touch()
    folder.delete_unused_checkpoints(frozenset({"checkpoint_2"}))
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("file")}
    assert left == {"t-1/checkpoint_2/file", "t-1/journal/file"}


@pytest.mark.parametrize("text", [b"{", b"[]", b""])
def test_a_damaged_record_is_named(folder: RunFolder, tmp_path: Path, text: bytes) -> None:
    begin_training(folder, spec(), "k")
    record = tmp_path / "t-1" / "train.json"
    assert folder.read_spec() == spec()
    record.write_bytes(record.read_bytes().replace(b"steps", b"stops"))
    with pytest.raises(StorageError, match=r"train\.json: is damaged \(its hash is wrong\)"):
        folder.read_spec()
    record.write_bytes(text)
    with pytest.raises(StorageError, match=r"train\.json: is damaged"):
        folder.check_spec(spec())
