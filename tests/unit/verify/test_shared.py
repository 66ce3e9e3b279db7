"""Checkpoints that share objects: checked once, said of each; and `checkpoints`, `pull` and `gc`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.progress import make_progress
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.verify import verify_sweep
from tests.unit.verify.stored import TRIALS, Stored

Cli = Callable[..., Any]
SHARED = b"s" * 100_000


def share(stored: Stored, trial: str) -> tuple[CheckpointStore, int, int]:
    """Store the two that the trial keeps anew, so that the second shares an object with the first."""
    checkpoints = CheckpointStore(stored.folder.store, stored.folder.sweep_id)
    first, second = checkpoints.numbers(trial)[-2:]
    source = stored.path.parent.parent / "source-shared"
    source.mkdir(exist_ok=True)
    (source / "shared").write_bytes(SHARED)
    parent = None
    for number in (first, second):
        checkpoints.delete(checkpoints.uri(trial, number))
        (source / "own").write_bytes(b"%d" % number * 70_000)
        parent = checkpoints.save(trial, number, source, parent=parent).manifest
    return checkpoints, first, second


def shared_object(stored: Stored, trial: str, number: int) -> Path:
    (path,) = (
        path for path in stored.path.glob(f"checkpoints/{trial}/{number}-*/*") if path.read_bytes() == SHARED
    )
    return path


def test_damage_that_two_checkpoints_share_is_said_of_both(ended: Stored) -> None:
    checkpoints, first, second = share(ended, "00000")
    before = verify_sweep(ended.folder)
    assert before.is_sound
    assert not [each for each in before.orphans if each.object.startswith("checkpoints/00000")]
    path = shared_object(ended, "00000", first)
    path.write_bytes(b"S" + SHARED[1:])
    report = verify_sweep(ended.folder)
    assert [each.checkpoint for each in report.damage] == [("00000", first), ("00000", second)]
    assert {each.object for each in report.damage} == {path.relative_to(ended.path).as_posix()}
    assert report.checked.hashed_bytes == before.checked.hashed_bytes, "what is shared is read once"
    assert checkpoints.exists(checkpoints.uri("00000", second))


def test_damage_in_a_deleted_checkpoints_folder_is_said_while_the_sweep_runs(unfinished: Stored) -> None:
    """The second refers to what the first, which is let go of, has stored."""
    _, first, second = share(unfinished, "00000")
    state = unfinished.state
    progress = make_progress(
        state, sweep_id=unfinished.folder.sweep_id, holder=current_holder(), at=time.time(), total=TRIALS
    )
    unfinished.folder.write_progress(progress)
    shared_object(unfinished, "00000", first).write_bytes(b"short")
    assert ("00000", second) in [each.checkpoint for each in verify_sweep(unfinished.folder).damage]


def test_pruning_beside_a_damaged_manifest_keeps_what_it_may_refer_to(unfinished: Stored) -> None:
    checkpoints, first, second = share(unfinished, "00000")
    stem = unfinished.path / "checkpoints" / "00000"
    checkpoints.store.delete(f"{unfinished.folder.sweep_id}/checkpoints/00000/{first}.json")
    manifest = stem / f"{second}.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-5])
    report = verify_sweep(unfinished.folder)
    assert not [each for each in report.orphans if each.object.startswith("checkpoints/00000")]
    manifest.write_bytes(whole)
    checkpoints.verify(checkpoints.uri("00000", second))


def test_the_kept_checkpoints_are_listed(cli: Cli, ended: Stored) -> None:
    _, first, second = share(ended, "00000")
    ran = cli("checkpoints", ended.path, "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = {(row["trial_id"], row["number"]): row for row in json.loads(ran.out)["checkpoints"]}
    assert len(rows) == 6
    old, new = rows["00000", first], rows["00000", second]
    assert (old["size_bytes"], old["new_bytes"]) == (170_000, 170_000)
    assert (new["size_bytes"], new["new_bytes"]) == (170_000, 70_000)
    assert (old["needed_by"], new["needed_by"]) == (["the policy keeps it"], ["the newest"])
    assert new["uri"] == f"{ended.folder.uri}/checkpoints/00000/{second}"
    shown = cli("checkpoints", ended.path).out
    assert f"{new['uri']}" in shown
    assert "166.0 KiB" in shown
    assert "68.4 KiB" in shown
    (ended.path / "checkpoints" / "00000" / f"{second}.json").write_bytes(b"{}")
    assert "the manifest is damaged" in cli("checkpoints", ended.path).out


def test_a_checkpoint_is_pulled_and_verified(cli: Cli, ended: Stored, tmp_path: Path) -> None:
    checkpoints, first, second = share(ended, "00000")
    uri = checkpoints.uri("00000", second)
    ran = cli("pull", uri, tmp_path / "out")
    assert (ran.code, ran.err) == (0, "")
    assert "2 files, 166.0 KiB, verified" in ran.out
    assert (tmp_path / "out" / "shared").read_bytes() == SHARED
    assert cli("pull", uri, tmp_path / "out").code != 0, "not into a folder that is in use"
    said = json.loads(cli("pull", uri, tmp_path / "again", "--json").out)
    assert (said["files"], said["size_bytes"]) == (2, 170_000)
    shared_object(ended, "00000", first).write_bytes(b"S" + SHARED[1:])
    ran = cli("pull", uri, tmp_path / "damaged")
    assert ran.code != 0
    assert "shared" in ran.err
    assert not (tmp_path / "damaged").exists()


def test_gc_frees_what_nothing_refers_to(cli: Cli, ended: Stored) -> None:
    checkpoints, first, second = share(ended, "00000")
    cli("gc", ended.path)
    left = ended.path / "checkpoints" / "00000" / f"{second}-0123abcd" / "left"
    left.parent.mkdir()
    left.write_bytes(b"x" * 5000)
    said = json.loads(cli("gc", ended.path, "--dry-run", "--json").out)
    assert (said["is_dry_run"], said["freed_bytes"], said["left"]) == (True, 5000, 0)
    assert left.exists()
    ran = cli("gc", ended.path, "--dry-run")
    assert "would free 4.9 KiB" in ran.out
    assert "raysweep gc" in ran.out
    assert "freed 4.9 KiB" in cli("gc", ended.path).out
    assert not left.exists()
    for number in (first, second):
        checkpoints.verify(checkpoints.uri("00000", number))
    assert "freed 0 B" in cli("gc", ended.path).out


def test_gc_leaves_a_running_sweep_alone(cli: Cli, unfinished: Stored) -> None:
    progress = make_progress(
        unfinished.state,
        sweep_id=unfinished.folder.sweep_id,
        holder=current_holder(),
        at=time.time(),
        total=TRIALS,
    )
    unfinished.folder.write_progress(progress)
    ran = cli("gc", unfinished.path)
    assert ran.code != 0
    assert "is held by a live controller" in ran.err


def test_what_a_trial_stored_elsewhere_is_fetched_only_when_asked(
    cli: Cli, ended: Stored, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model").write_text("theirs")
    checkpoints = CheckpointStore(ended.folder.store, ended.folder.sweep_id)
    number = checkpoints.numbers("00000")[-1]
    checkpoints.delete(checkpoints.uri("00000", number))
    uri = checkpoints.save_link("00000", number, str(tmp_path / "theirs")).uri
    ran = cli("pull", uri, tmp_path / "out")
    assert ran.code == 1
    assert "outside the storage path" in ran.err
    assert "`raysweep pull --follow`" in ran.err
    assert cli("pull", "--follow", uri, tmp_path / "out").code == 0
    assert (tmp_path / "out" / "model").read_text() == "theirs"
    ran = cli("verify", ended.path)
    assert ran.code == 0
    assert f"{tmp_path}/theirs is where a trial says it stored its checkpoint itself" in " ".join(
        ran.out.split()
    )
