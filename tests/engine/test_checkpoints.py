"""Checkpoints through whole sweeps: kept as the policy says, restored after a failure."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import CheckpointCommitted, CheckpointDamaged
from raysweep.errors import CheckpointDamagedError, OutsideStorageError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint, restore_uri
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from tests.engine.conftest import INLINE
from tests.sampling import first_of

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]
Events = Callable[..., list[Any]]


def steps_kept(storage: Path, tmp_path: Path, trial: str) -> list[int]:
    """The steps of the checkpoints that lie in the store, oldest first."""
    (folder,) = storage.glob(f"*/checkpoints/{trial}")
    steps = []
    for manifest in sorted(folder.glob("*.json"), key=lambda path: int(path.stem)):
        target = tmp_path / "restored" / trial / manifest.stem
        restore_uri(str(manifest.with_suffix("")), target)
        steps.append(json.loads((target / "at.json").read_text())["step"])
    manifests = {path.stem for path in folder.glob("*.json")}
    assert {path.name.partition("-")[0] for path in folder.iterdir() if path.is_dir()} == manifests
    return steps


@pytest.mark.parametrize(
    ("keep", "mode", "expected"),
    first_of(
        [
            ({"keep_last": 1, "keep_best": True}, "max", [1, 5]),
            ({"keep_last": 1, "keep_best": True}, "min", [5]),
            ({"keep_last": 3, "keep_best": False}, "max", [3, 4, 5]),
        ]
    ),
)
def test_the_last_and_the_best_are_kept(
    keep: dict[str, Any], mode: str, expected: list[int], run: Run, storage: Path, tmp_path: Path
) -> None:
    outcome = run("steps", checkpoint=keep, mode=mode, **INLINE)
    (trial,) = outcome.trials
    assert trial.state == "completed"
    assert trial.checkpoint_uri is not None
    restore_uri(trial.checkpoint_uri, tmp_path / "last")
    assert json.loads((tmp_path / "last" / "at.json").read_text()) == {"step": 5}
    assert steps_kept(storage, tmp_path, trial.trial_id) == expected


def test_every_checkpoint_belongs_to_its_report(run: Run, events: Events) -> None:
    outcome = run("steps", {"steps": 4}, num_samples=2, **INLINE)
    assert outcome.counts == {"completed": 2}
    for number in range(2):
        committed = [event for event in events(CheckpointCommitted) if event.trial == number]
        assert [event.report for event in committed] == [0, 1, 2, 3]
        assert [event.number for event in committed] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_trial_that_dies_twice_goes_on_from_where_it_was(run: Run, storage: Path, tmp_path: Path) -> None:
    space = {"dies_at": 2, "how": "sigkill", "deaths": 1}
    outcome = run("steps", space, isolation="process", num_samples=2, max_concurrent_trials=1)
    for trial in outcome.trials:
        assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"]
        assert trial.reports == 5
        assert steps_kept(storage, tmp_path, trial.trial_id) == [5]


def go_back(config: dict[str, Any]) -> None:
    """Fails once; saves until what its second attempt began from is deleted, then asks for a checkpoint."""
    context = rs.get_context()
    early = rs.get_checkpoint()
    for step in range(3):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at.json").write_text(json.dumps({"attempt": context.attempt, "step": step}))
            rs.report({"loss": 1.0}, checkpoint=folder, wait=True)
        if context.attempt == 1:
            raise ValueError("as asked")
    deadline = time.monotonic() + 30
    while list(Path(config["storage"]).glob("*/checkpoints/*/0.json")):
        assert time.monotonic() < deadline, "it is kept for ever"
        time.sleep(0.05)
    for checkpoint in (rs.get_checkpoint(), early):
        assert checkpoint is not None
        with checkpoint as found:
            assert json.loads((found / "at.json").read_text()) == {"attempt": 2, "step": 2}


def test_a_resumed_trial_can_ask_for_a_checkpoint_at_any_time(run: Run, storage: Path) -> None:
    """The one that it began from is deleted as soon as it has saved a newer one."""
    (trial,) = run(go_back, {"storage": str(storage)}, checkpoint={"keep_best": False}).trials
    assert trial.error is None
    assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"]


def test_a_directory_that_is_none_is_the_trials_error(run: Run, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        rs.report({"loss": 1.0}, checkpoint="/nowhere/at/all")

    (trial,) = run(train, failure={"max_failures": 0}, **INLINE).trials
    assert trial.error is not None
    assert "takes a directory; '/nowhere/at/all' is none" in trial.error.message


def spoil(config: dict[str, Any]) -> None:
    """Fails once after its second checkpoint, which is not on the disk as it was written any more."""
    context = rs.get_context()
    step = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        try:
            with checkpoint as folder:
                raise AssertionError(f"restored {(folder / 'at.json').read_text()}")
        except CheckpointDamagedError:
            if not config["starts_over"]:
                raise
    while step < 3:
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at.json").write_text(json.dumps({"step": step, "attempt": context.attempt}))
            is_last = step == 2 and context.attempt == 1 and context.number == 0
            rs.report({"loss": 1.0 / step}, checkpoint=folder, wait=is_last)
        if is_last:
            (newest,) = Path(config["storage"]).glob("*/checkpoints/00000/1-*/*")
            newest.write_text(newest.read_text().replace("2", "3"))
            raise ValueError("as asked")


@pytest.mark.parametrize("starts_over", first_of([False, True]))
def test_a_damaged_checkpoint_is_refused_by_name(run: Run, storage: Path, starts_over: bool) -> None:
    """The trial fails with a clear error and the sweep continues, unless the trainable says otherwise."""
    space = {"storage": str(storage), "starts_over": starts_over}
    keep = {"keep_last": 3, "on_damage": "fail"}
    outcome = run(spoil, space, num_samples=2, checkpoint=keep, **INLINE)
    first, second = outcome.trials
    assert second.state == "completed"
    assert first.attempts[0].error is not None
    assert first.attempts[0].error.type == "ValueError"
    if starts_over:
        assert (first.state, len(first.attempts)) == ("completed", 2)
        return
    assert first.state == "failed"
    assert first.error is not None
    assert first.error.type == "CheckpointDamagedError"
    assert "/checkpoints/00000/1: at.json" in first.error.message
    assert "hash is wrong" in first.error.message
    assert "catch CheckpointDamagedError" in first.error.message
    damage = verify_sweep(SweepFolder(open_store(str(storage)), outcome.sweep_id)).damage
    (finding,) = damage
    assert "checkpoints/00000/1-" in finding.object
    assert finding.lost == "checkpoint 1 of trial 0"


KINDS = ("manifest", "lost manifest", "pack", "chunk", "lost chunk", "none")


def flip(config: dict[str, Any]) -> None:
    """Four steps; its third checkpoint is damaged before the first attempt fails."""
    context = rs.get_context()
    step, kind = 0, KINDS[context.number]
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            step = json.loads((folder / "at.json").read_text())["step"]
            assert (folder / "body").read_bytes() == bytes([step]) * 100_000
    assert step == context.iteration
    while step < 4:
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at.json").write_text(json.dumps({"step": step}))
            (Path(folder) / "body").write_bytes(bytes([step]) * 100_000)
            # Not by the attempt's number: one that was taken back before it began has one too.
            is_last = step == 3 and checkpoint is None
            rs.report({"loss": 1.0 / step, "step": step}, checkpoint=folder, wait=is_last)
        if is_last:
            damage(next(Path(config["storage"]).glob(f"*/checkpoints/{context.trial_id}")), kind)
            raise ValueError("as asked")


def damage(folder: Path, kind: str) -> None:
    """One bit of the newest checkpoint, or one object."""
    newest = max(folder.glob("*.json"), key=lambda path: int(path.stem))
    objects = sorted(folder.glob(f"{newest.stem}-*/*"), key=lambda path: path.stat().st_size)
    assert [path.stat().st_size for path in objects] == [11, 100_000]
    target = {"manifest": newest, "pack": objects[0], "chunk": objects[1]}.get(kind.removeprefix("lost "))
    if target is None:
        return
    if kind.startswith("lost"):
        target.unlink()
        return
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 1
    target.write_bytes(data)


def test_a_trial_survives_whatever_is_damaged_of_its_newest_checkpoint(
    run: Run, storage: Path, events: Events
) -> None:
    """It is found, named, and the trial resumes from the checkpoint before; the journal says so."""
    outcome = run(flip, {"storage": str(storage)}, num_samples=len(KINDS), checkpoint={"keep_last": 3})
    assert outcome.counts == {"completed": len(KINDS)}
    assert {event.trial for event in events(CheckpointDamaged)} == set(range(len(KINDS) - 1))
    for trial, kind in zip(outcome.trials, KINDS, strict=True):
        ends = [attempt.end for attempt in trial.attempts]
        note = next((note for note in outcome.notes if note.startswith(f"trial {trial.number}: ")), "")
        if kind == "none":
            assert (ends, trial.reports, note) == (["failed", "completed"], 4, "")
            continue
        assert ends == ["failed", "went back", "completed"], kind
        assert trial.reports == 5, "the third step was made again"
        # The first attempt's are 0, 1, 2; where that was taken back before it began, 10^9 more.
        assert re.search(r"it resumed from checkpoint (10{8})?1, 1 reports earlier", note), note
        what = {
            "manifest": r"2\.json: the manifest is damaged",
            "lost manifest": "2: there is no such checkpoint",
            "pack": r"2: at\.json: the content changed \(its hash is wrong\)",
            "chunk": r"2: body: the content changed \(its hash is wrong\)",
            "lost chunk": "2: body: the file is missing",
        }[kind]
        assert re.search(f"/checkpoints/{trial.trial_id}/(10{{8}})?{what}", note), note
    report = verify_sweep(SweepFolder(open_store(str(storage)), outcome.sweep_id))
    assert (report.is_sound, report.orphans) == (True, ()), "nothing of what was damaged is left"


def hand_over(config: dict[str, Any]) -> None:
    """Ten steps, each with a checkpoint that is handed over or copied; dies once, right after report 6."""
    context = rs.get_context()
    step = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            step = json.loads((folder / "at.json").read_text())["step"]
            assert (folder / "body").read_bytes() == b"b" * 100_000
    assert step == context.iteration, "the checkpoint belongs to the report that it is counted from"
    own = Path(tempfile.mkdtemp()) if config["is_copied"] else None
    while step < 10:
        step += 1
        with nullcontext(own) if own is not None else rs.new_checkpoint() as folder:
            (folder / "at.json").write_text(json.dumps({"step": step}))
            if step == 1 or not (folder / "body").exists():
                (folder / "body").write_bytes(b"b" * 100_000)
            rs.report({"loss": abs(step - 4.0)}, checkpoint=folder)
            assert folder.exists() == config["is_copied"]
            if own is not None:
                (folder / "at.json").write_text("it is the trial's own again")
        if step == 6 and context.attempt == 1 and config["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("isolation", "is_copied"),
    first_of([("worker", False), ("process", False), ("process", True)]),
)
def test_checkpoints_that_are_handed_over(
    isolation: str, is_copied: bool, run: Run, storage: Path, tmp_path: Path, events: Events
) -> None:
    """The best and the last are kept, each by its own report's score, and the last is there at the end."""
    keep = {"keep_last": 1, "keep_best": True}
    (trial,) = run(
        hand_over, {"dies": False, "is_copied": is_copied}, isolation=isolation, checkpoint=keep
    ).trials
    assert (trial.state, trial.reports, trial.error) == ("completed", 10, None)
    committed = events(CheckpointCommitted)
    assert [(event.report, event.score) for event in committed] == [
        (step - 1, abs(step - 4.0)) for step in range(1, 11)
    ]
    (folder,) = storage.glob(f"*/checkpoints/{trial.trial_id}")
    kept = sorted(int(path.stem) for path in folder.glob("*.json"))
    assert kept == [committed[3].number, committed[9].number]
    for number, step in zip(kept, (4, 10), strict=True):
        restore_uri(str(folder / f"{number}"), tmp_path / f"{number}")
        assert json.loads((tmp_path / f"{number}" / "at.json").read_text()) == {"step": step}
    (sweep,) = storage.glob("*/sweep.json")
    report = verify_sweep(SweepFolder(open_store(str(storage)), sweep.parent.name))
    assert (report.is_sound, report.orphans) == (True, ())


@pytest.mark.parametrize(
    ("isolation", "is_copied"),
    first_of([("worker", True), ("process", False), ("process", True)]),
)
def test_a_trial_that_is_killed_with_a_checkpoint_in_hand(
    isolation: str, is_copied: bool, run: Run, storage: Path
) -> None:
    """It continues from one that it had reported, whichever was stored by then."""
    (trial,) = run(hand_over, {"dies": True, "is_copied": is_copied}, isolation=isolation).trials
    assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"], trial.error
    assert 10 <= trial.reports <= 16, "what lay past the committed one was done again"
    assert trial.checkpoint_uri is not None
    with open_checkpoint(trial.checkpoint_uri) as folder:
        assert json.loads((folder / "at.json").read_text()) == {"step": 10}
    (sweep,) = storage.glob("*/sweep.json")
    assert verify_sweep(SweepFolder(open_store(str(storage)), sweep.parent.name)).is_sound


@pytest.mark.parametrize("isolation", first_of(["worker", "process"]))
def test_a_trial_resumes_from_what_it_has_stored_itself(
    isolation: str, run: Callable[..., rs.SweepOutcome], tmp_path: Path, lines: Callable[[], list[list[str]]]
) -> None:
    """Retention lets go of the addresses, and of nothing that lies there."""
    kept = tmp_path / "kept"
    outcome = run("stores_itself", {"kept": str(kept)}, num_samples=1, isolation=isolation)
    assert (outcome.status, lines()) == ("completed", [["from", "0"], ["from", "2"]])
    assert sorted(path.name for path in kept.iterdir()) == ["1", "2", "3", "4"]
    assert outcome.best.checkpoint_uri is not None
    with open_checkpoint(outcome.best.checkpoint_uri, follows=True) as folder:
        assert (folder / "step").read_text() == "4"
    with (
        pytest.raises(OutsideStorageError, match="outside the storage path"),
        open_checkpoint(outcome.best.checkpoint_uri),
    ):
        pass
    trial = CheckpointStore.at(str(outcome.uri).rpartition("/")[0], outcome.sweep_id)
    assert len(trial.numbers("00000")) == 1
