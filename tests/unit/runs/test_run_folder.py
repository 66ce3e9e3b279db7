"""The folder of a training run: one spec, one holder, one end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raysweep.errors import SpecChangedError, StorageError
from raysweep.outcome import TrainOutcome
from raysweep.runs.ownership.training_claim import Claim, claim_run, find_at_rest
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.storage.objects.opening import open_store
from raysweep.training.heartbeat import Heartbeat
from raysweep.training.progress import Watch

NOW = 1_800_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(open_store(tmp_path), "t-1")


def spec(**fields: object) -> TrainSpec:
    return TrainSpec.from_any({"name": "t", "trainable": "examples.quick:steps", **fields})


def test_a_changed_spec_is_refused_with_each_difference(folder: RunFolder) -> None:
    folder.freeze_spec(spec(config={"lr": 0.1, "deep": {"er": 1}}), "k")
    folder.freeze_spec(
        spec(config={"lr": 0.1, "deep": {"er": 1}}, failure={"max_failures": 5}, tags={"a": "b"}), "k"
    )
    with pytest.raises(SpecChangedError) as caught:
        folder.freeze_spec(spec(config={"lr": 0.2, "deep": {"er": 1}, "new": "x"}, framework="torch"), "k")
    assert sorted(caught.value.diff) == [
        "config.lr: 0.1 -> 0.2",
        'config.new: (absent) -> "x"',
        'framework: "data_parallel" -> "torch"',
    ]


def test_the_heartbeat_ends_with_how_the_block_ended(folder: RunFolder) -> None:
    def status_after(error: type[BaseException] | None) -> str:
        claim = claim_run(folder, find_at_rest(folder))
        assert isinstance(claim, Claim)
        try:
            with Heartbeat(claim, "t", Watch(run_id="t-1"), threading.Event()).beating():
                assert (beat := folder.read_progress()) is not None
                assert beat.status == "running"
                if error is not None:
                    raise error
        except (ValueError, KeyboardInterrupt):
            pass
        beat = folder.read_progress()
        assert beat is not None
        return beat.status

    assert [status_after(error) for error in (None, ValueError, KeyboardInterrupt)] == [
        "completed",
        "failed",
        "cancelled",
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
    for name in ("checkpoint_1", "checkpoint_2", "attempts"):
        (tmp_path / "t-1" / name).mkdir(parents=True)
        (tmp_path / "t-1" / name / "file").touch()
    folder.delete_unused_checkpoints(frozenset({"checkpoint_2"}))
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("file")}
    assert left == {"t-1/checkpoint_2/file", "t-1/attempts/file"}
