"""`raysweep verify`: what it shows and returns, orphans, and what it mends."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from raysweep.errors import SweepHeldError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership import holder
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.progress import make_progress
from raysweep.runs.snapshots import SNAPSHOT_FORMAT
from raysweep.storage.journal.compaction import SINGLES
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.sealed import encode_sealed
from raysweep.storage.objects.store import ObjectInfo
from raysweep.storage.objects.wrapped import WrappedStore
from raysweep.verify import prune, repair, verify_sweep
from tests.unit.verify.stored import Stored, make_asked, store_sweep

Cli = Callable[..., Any]


def alive(stored: Stored, **changes: Any) -> None:
    """This process says that it runs the sweep."""
    progress = make_progress(
        stored.state, sweep_id=stored.folder.sweep_id, holder=current_holder(), at=time.time(), total=4
    )
    stored.folder.write_progress(progress.model_copy(update=changes))


def test_a_sound_sweep(cli: Cli, ended: Stored) -> None:
    ran = cli("verify", ended.path)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == f"sound {ended.folder.sweep_id}"
    assert "3 completed, 1 failed" in ran.out
    assert "22 segments in 22 objects, 40 records, generation 3" in ran.out
    assert "6 with 12 files" in ran.out


def test_damage_is_shown_with_what_is_lost_and_what_can_be_done(cli: Cli, unfinished: Stored) -> None:
    weights = max(unfinished.path.glob("checkpoints/00002/*/*"))
    newest = max(unfinished.path.glob("checkpoints/00000/*/*"))
    newest.write_bytes(b"x" * newest.stat().st_size)
    ran = cli("verify", unfinished.folder.sweep_id, "--storage", unfinished.path.parent)
    assert ran.code == 1
    assert ran.out.startswith(f"damaged {unfinished.folder.sweep_id}\n")
    row = next(line for line in ran.out.splitlines() if line.startswith("damage "))
    assert newest.relative_to(unfinished.path).as_posix() in row
    assert "the content changed (its hash is wrong); it holds " in row
    assert "weights.bin" in row
    assert "checkpoint 2 of trial 0" in row
    assert "the trial's results stand; whole or not, it has also 1" in row
    # By their sizes both are what they should be.
    assert cli("verify", unfinished.path, "--quick").code == 0
    weights.write_bytes(b"short")
    assert cli("verify", unfinished.path, "--quick").code in (0, 1)


def test_as_json(cli: Cli, ended: Stored) -> None:
    (ended.path / "outcome.json").write_bytes(b"{}")
    ran = cli("verify", ended.path, "--json")
    assert (ran.code, ran.err) == (1, "")
    said = json.loads(ran.out)
    assert (said["is_sound"], said["status"], said["generation"]) == (False, "completed", 3)
    assert said["checked"]["records"] == 40
    found = next(finding for finding in said["findings"] if finding["severity"] == "damage")
    assert found.keys() == {"severity", "object", "problem", "lost", "fix", "size_bytes"}
    assert (found["object"], found["lost"]) == ("outcome.json", "nothing")
    assert said["orphaned_bytes"] == sum(finding["size_bytes"] for finding in said["findings"])


def test_what_is_no_sweep(cli: Cli, ended: Stored, tmp_path: Path) -> None:
    ran = cli("verify", tmp_path / "nowhere" / "at-all")
    assert (ran.code, ran.out) == (2, "")
    assert "no sweep 'at-all'" in ran.err
    assert cli("verify", "dusk", "--storage", ended.path.parent).code == 2
    assert cli("verify", "ftp://x/y").code == 2
    (tmp_path / "empty").mkdir()
    assert cli("verify", tmp_path / "empty").code == 2


def test_a_sweep_without_its_spec_is_found_by_its_folder(cli: Cli, ended: Stored) -> None:
    (ended.path / "sweep.json").unlink()
    ran = cli("verify", ended.path)
    assert ran.code == 1
    assert "sweep.json" in ran.out
    assert "cannot be replayed without sweep.json" in ran.out


def test_a_renamed_folder_is_told(unfinished: Stored) -> None:
    """A resume would compute another id from name and key, and begin a new sweep beside it."""
    shutil.move(unfinished.path, unfinished.path.with_name("renamed"))
    folder = SweepFolder(unfinished.folder.store, "renamed")
    (finding,) = verify_sweep(folder).damage
    assert finding.object == "sweep.json"
    assert unfinished.folder.sweep_id in finding.fix


# -- orphans ------------------------------------------------------------------------------------------


def make_orphans(stored: Stored) -> int:
    """What dying workers leave; returns how many bytes."""
    trial = stored.path / "checkpoints" / "00003"
    (trial / "77-abcd0123").mkdir(parents=True)
    (trial / "77-abcd0123" / "part").write_bytes(b"x" * 1000)
    (trial / ".raysweep-tmp-1-2-3").write_bytes(b"x" * 500)
    (trial / "stray").write_bytes(b"x" * 20)
    return 1520


def test_orphans_are_no_damage_and_can_be_pruned(cli: Cli, unfinished: Stored) -> None:
    before = verify_sweep(unfinished.folder)
    added = make_orphans(unfinished)
    report = verify_sweep(unfinished.folder)
    assert report.is_sound
    assert report.orphaned_bytes == before.orphaned_bytes + added
    problems = {finding.object: finding.problem for finding in report.orphans}
    assert problems["checkpoints/00003/77"] == "files without a manifest"
    assert problems["checkpoints/00003/stray"] == "no part of a checkpoint"
    assert problems["checkpoints/00003/.raysweep-tmp-1-2-3"] == "a write that was never finished"
    assert "a checkpoint that no trial refers to" in problems.values()
    ran = cli("verify", unfinished.path, "--prune")
    assert ran.code == 0
    assert f"pruned       {len(report.orphans)}, " in ran.out
    after = verify_sweep(unfinished.folder)
    assert (after.orphans, after.is_sound) == ((), True)
    assert after.checked.checkpoints == report.checked.checkpoints
    assert not (unfinished.path / "checkpoints" / "00003").exists()


class SlowClock(WrappedStore):
    """A store whose clock, which dates its objects, is two hours behind."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for info in super().list(prefix):
            yield replace(info, modified_at=info.modified_at - 7200)

    def head(self, key: str) -> ObjectInfo | None:
        info = super().head(key)
        return replace(info, modified_at=info.modified_at - 7200) if info is not None else None


def test_what_is_old_is_for_the_stores_clock_to_say(unfinished: Stored) -> None:
    plain = unfinished.folder.store
    plain.delete(f"{unfinished.folder.sweep_id}/progress.json")
    folder = SweepFolder(SlowClock(plain), unfinished.folder.sweep_id)
    stem = f"{folder.sweep_id}/checkpoints/00003"
    for name in ("old", "new"):
        plain.put(f"{stem}/{name}", b"x")
    old = Path(unfinished.path) / "checkpoints" / "00003" / "old"
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert [each.object for each in prune(folder, verify_sweep(folder))] == ["checkpoints/00003/old"]
    assert plain.exists(f"{stem}/new")
    assert not [info.key for info in plain.list(folder.sweep_id) if "probe" in info.key]


def test_nothing_is_pruned_while_a_controller_lives(cli: Cli, unfinished: Stored) -> None:
    make_orphans(unfinished)
    alive(unfinished)
    files = unfinished.files()
    ran = cli("verify", unfinished.path, "--prune")
    assert ran.code == 5
    assert "is held by a live controller" in ran.err
    assert unfinished.files() == files
    assert "a controller runs it" in cli("verify", unfinished.path).out
    with pytest.raises(SweepHeldError):
        repair(unfinished.folder, verify_sweep(unfinished.folder))


@pytest.mark.parametrize("is_known", [True, False])
def test_where_nobody_knows_only_what_is_old_is_pruned(
    unfinished: Stored, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its controller was on another host, or never wrote a heartbeat: a worker of it may be at it still."""
    monkeypatch.setattr(holder, "STALE_WATCH_S", 0.5)  # 6 in earnest
    make_orphans(unfinished)
    if is_known:
        elsewhere = current_holder().model_copy(update={"host": "elsewhere", "boot_id": "other"})
        alive(unfinished, holder=elsewhere, at=time.time() - 100)
    else:
        (unfinished.path / "progress.json").unlink()
    old = unfinished.path / "checkpoints" / "00003" / "stray"
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    report = verify_sweep(unfinished.folder)
    assert [each.object for each in prune(unfinished.folder, report)] == ["checkpoints/00003/stray"]
    assert len(verify_sweep(unfinished.folder).orphans) == len(report.orphans) - 1


def test_what_a_running_controller_deletes_meanwhile_is_no_damage(
    unfinished: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is read, then the controller lets a checkpoint go: its manifest is not there any more."""
    from raysweep.verify import sweep as room

    alive(unfinished)
    manifest = max(unfinished.path.glob("checkpoints/00000/*.json"))
    manifest.unlink()
    (finding,) = verify_sweep(unfinished.folder).damage  # the journal says still that it is there
    assert finding.object == manifest.relative_to(unfinished.path).as_posix()
    replayed = room.replay_state(unfinished.folder)
    assert replayed is not None
    trial = replayed[1].trials[0]
    trial.checkpoints = trial.checkpoints[:-1]
    # The controller's next record cannot be timed between two reads from outside.
    monkeypatch.setattr(room, "replay_state", lambda folder: replayed)
    assert verify_sweep(unfinished.folder).is_sound


# -- mending ------------------------------------------------------------------------------------------


def test_a_damaged_outcome_is_made_anew(cli: Cli, ended: Stored) -> None:
    path = ended.path / "outcome.json"
    before = json.loads(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-30])
    ran = cli("verify", ended.path, "--repair")
    assert ran.code == 0, ran.out
    assert "repaired     outcome.json" in ran.out
    after = json.loads(path.read_bytes())
    for said in (before, after):
        del said["raysweep_version"], said["blake2b"], said["uri"]
    assert after == before


def test_an_outcome_that_contradicts_the_journal_is_told(ended: Stored) -> None:
    outcome = ended.folder.read_outcome()
    assert outcome is not None
    better = outcome.trials[2].model_copy(update={"score": 0.0})
    trials = (*outcome.trials[:2], better, *outcome.trials[3:])
    (ended.path / "outcome.json").unlink()
    ended.folder.write_outcome_if_absent(outcome.model_copy(update={"trials": trials}))
    (finding,) = verify_sweep(ended.folder).damage
    assert finding.problem == "is not what the journal gives: 00002.score"
    assert [each.object for each in repair(ended.folder, verify_sweep(ended.folder))] == ["outcome.json"]
    assert verify_sweep(ended.folder).is_sound


def test_a_snapshot_that_is_not_the_state_of_its_number(cli: Cli, unfinished: Stored) -> None:
    """Its hash is right: nothing but the journal can tell."""
    folder = unfinished.folder
    snapshot = folder.snapshots.read_newest()
    assert snapshot.state is not None
    state = orjson.loads(snapshot.state)
    key = f"{folder.sweep_id}/snapshots/000000000012.json"
    other = state | {"search": state["search"] | {"suggested": 3}}
    folder.store.put(key, encode_sealed({"format": SNAPSHOT_FORMAT, "number": 12, "state": other}))
    (finding,) = verify_sweep(folder).damage
    assert finding.problem == "is not the state that the journal gives (search)"
    folder.store.put(key, encode_sealed({"format": SNAPSHOT_FORMAT + 1, "number": 12, "state": {}}))
    report = verify_sweep(folder)
    assert report.is_sound
    assert any(f"has format {SNAPSHOT_FORMAT + 1}" in each.problem for each in report.findings)
    folder.store.put(key, b"junk")
    assert cli("verify", unfinished.path, "--repair").code == 0
    assert not (unfinished.path / "snapshots").exists()


def test_an_outcome_that_is_still_to_be_written_is_no_damage(ended: Stored) -> None:
    (ended.path / "outcome.json").unlink()
    report = verify_sweep(ended.folder)
    assert report.is_sound
    assert any("`raysweep resume` writes it" in each.fix for each in report.findings)


# -- merged segments, and other stores ------------------------------------------------------------------


def merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Stored, str]:
    """A sweep whose journal was compacted, and the name of the merged object."""
    from raysweep.storage.journal import compaction

    monkeypatch.setattr(compaction, "SINGLES", 8)
    assert SINGLES == 64
    stored = store_sweep(tmp_path, is_ended=True)
    backend = ObjectJournal(stored.folder.store, f"{stored.folder.sweep_id}/journal")
    for _ in backend.compact():
        pass
    wide = [item for item in backend.list_objects() if item.is_merged]
    assert wide
    return stored, f"journal/{wide[0].name}"


def test_merged_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, name = merged(tmp_path, monkeypatch)
    report = verify_sweep(stored.folder)
    assert report.is_sound
    assert report.checked.segments == 22
    assert report.checked.journal_objects < 22
    claim = stored.path / "journal/000000000001.jsonl"
    data = claim.read_bytes()
    claim.unlink()
    (finding,) = verify_sweep(stored.folder).damage
    assert (finding.object, "never deleted" in finding.problem) == ("journal/000000000001.jsonl", True)
    claim.write_bytes(data[:50])  # what it holds is in the merged object too
    (finding,) = verify_sweep(stored.folder).damage
    assert (finding.object, finding.lost) == ("journal/000000000001.jsonl", "nothing")
    assert verify_sweep(stored.folder).status == "completed"
    claim.write_bytes(data)
    path = stored.path / name
    path.write_bytes(path.read_bytes().replace(b'"TrialReported"', b'"TrialReporteb"', 1))
    damage = verify_sweep(stored.folder).damage
    assert name in [finding.object for finding in damage]
    assert any("segments" in finding.lost or "record" in finding.lost for finding in damage)


def test_in_memory_and_in_another_place(ended: Stored) -> None:
    """A sweep that was copied to another kind of store is checked there: nothing hangs on its old URIs."""
    store = open_store(f"memory://{secrets.token_hex(8)}")
    for name in ended.files():
        store.put(f"{ended.folder.sweep_id}/{name}", (ended.path / name).read_bytes())
    folder = SweepFolder(store, ended.folder.sweep_id)
    report = verify_sweep(folder)
    assert report.is_sound, report.damage
    assert report.checked.files == 12
    assert make_asked("x").key == "k"
    assert len(prune(folder, report)) == len(report.orphans) > 0
    assert verify_sweep(folder).orphans == ()
