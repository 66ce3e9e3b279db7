"""Checkpoints that a trial hands over: taken by rename, stored in the background, before its end."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from raysweep.errors import SpecError, TrialStopped
from raysweep.messages import CheckpointCommitted, CheckpointFailed, Interrupt, Stop, TrialReported
from raysweep.storage.checkpoints.store import CheckpointStore, restore_uri
from raysweep.worker.checkpoints import staging
from raysweep.worker.checkpoints.uploader import MAX_WAITING, PAUSE_S
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import SweepPlace
from tests.unit.worker.handed_over import (
    JOB,
    LONG_S,
    Ears,
    Gate,
    ears,
    gate,
    hand_over,
    session,
    until,
)

__all__ = ["ears", "gate", "session"]  # fixtures


def stored(gate: Gate, number: int, tmp_path: Path) -> str:
    target = tmp_path / f"out-{number}-{time.monotonic_ns()}"
    CheckpointStore(gate.inner, "s").restore(f"{gate.inner.url}/s/checkpoints/00003/{number}", target)
    return (target / "text").read_text()


def test_report_returns_before_it_is_stored(session: Session, gate: Gate, ears: Ears, tmp_path: Path) -> None:
    folder = hand_over(session, "a")
    assert not folder.exists(), "taken"
    assert gate.reached.wait(LONG_S)
    assert ears.saved() == []
    gate.opened.set()
    session.finish()
    assert ears.saved() == [7]
    assert stored(gate, 7, tmp_path) == "a"
    assert list((tmp_path / "staging").iterdir()) == [], "nothing is left"


def test_they_are_committed_in_their_order_each_with_its_own_score(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    for number in range(3):
        hand_over(session, f"{number}", loss=float(number))
    session.report({"loss": 9.0}, None, False)
    gate.opened.set()
    source = tmp_path / "foreign"
    source.mkdir()
    (source / "text").write_text("foreign")
    session.report({"loss": 10.0}, source, False)
    session.finish()
    found = [message for message in ears.heard if isinstance(message, CheckpointCommitted)]
    assert [(each.number, each.report, each.score) for each in found] == [
        (7, 0, 0.0), (8, 1, 1.0), (9, 2, 2.0), (10, 4, 10.0),
    ]  # fmt: skip
    assert [stored(gate, number, tmp_path) for number in (7, 8, 9, 10)] == ["0", "1", "2", "foreign"]


def test_what_they_have_in_common_is_stored_once(session: Session, gate: Gate) -> None:
    gate.opened.set()
    for head in ("a", "b"):
        with session.new_checkpoint() as folder:
            (folder / "body").write_bytes(b"x" * 100_000)
            (folder / "head").write_bytes(head.encode() * 70_000)
            session.report({"loss": 1.0}, folder, False)
    session.finish()
    manifest = CheckpointStore(gate.inner, "s").read_manifest(f"{gate.inner.url}/s/checkpoints/00003/8")
    assert (manifest.size_bytes, manifest.new_bytes) == (170_000, 70_000)


def test_a_trial_waits_where_too_many_do(session: Session, gate: Gate, ears: Ears) -> None:
    hand_over(session, "stored now")
    assert gate.reached.wait(LONG_S)
    for number in range(MAX_WAITING):
        hand_over(session, f"{number}")
    assert ears.busy() == []
    one_more = threading.Thread(target=hand_over, args=(session, "one more"))
    one_more.start()
    until(lambda: ears.busy() == [True])  # so its silence is no stall
    assert one_more.is_alive()
    gate.opened.set()
    one_more.join(LONG_S)
    session.finish()
    assert ears.saved() == [7, 8, 9, 10]


def test_wait_waits_for_the_commit(session: Session, gate: Gate, ears: Ears) -> None:
    done = threading.Event()

    def report() -> None:
        hand_over(session, "a", wait=True)
        done.set()

    threading.Thread(target=report, daemon=True).start()
    assert gate.reached.wait(LONG_S)
    session.answer(0)
    assert not done.is_set()
    gate.opened.set()
    assert done.wait(LONG_S)
    kinds = [type(message) for message in ears.heard]
    assert kinds.index(CheckpointCommitted) < len(kinds) - 1
    assert isinstance(ears.heard[-1], TrialReported), "the answer is asked for once the checkpoint is known"


def test_a_stop_waits_for_what_is_in_hand(session: Session, gate: Gate, ears: Ears, tmp_path: Path) -> None:
    hand_over(session, "a")
    session.tell(Stop(*JOB.who, reason="preempt", wants_checkpoint=True, allows="checkpoint"))
    assert session.should_checkpoint
    gate.opened.set()
    with pytest.raises(TrialStopped):
        hand_over(session, "b")
    assert ears.saved() == [7, 8], "stored by the time that it ends"
    assert stored(gate, 8, tmp_path) == "b"


def test_an_interruption_ends_the_wait_and_the_upload(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    hand_over(session, "a")
    hand_over(session, "b")
    assert gate.reached.wait(LONG_S)
    finished = threading.Thread(target=session.finish)
    session.tell(Stop(*JOB.who, reason="limit"))
    finished.start()
    until(lambda: ears.busy() == [True])
    session.tell(Interrupt(*JOB.who))
    finished.join(LONG_S)
    assert not finished.is_alive()
    gate.opened.set()
    uploading = session._saver._uploader._thread
    assert uploading is not None
    uploading.join(LONG_S)
    assert not uploading.is_alive()
    assert ears.saved() == []
    assert not [message for message in ears.heard if isinstance(message, CheckpointFailed)]
    assert list(gate.inner.list()) == [], "what was begun is taken back"


def test_the_newest_is_given_back_once_it_is_stored(session: Session, gate: Gate) -> None:
    hand_over(session, "a")
    threading.Timer(0.1, gate.opened.set).start()
    checkpoint = session.get_checkpoint()
    assert checkpoint is not None
    hand_over(session, "b")
    with checkpoint as folder:
        assert (folder / "text").read_text() == "b"


def test_one_that_cannot_be_stored_is_said_and_the_next_one_is(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    gate.opened.set()
    gate.fails = True
    hand_over(session, "a")
    until(lambda: any(isinstance(message, CheckpointFailed) for message in ears.heard))
    gate.fails = False
    hand_over(session, "b")
    session.finish()
    (unsaved,) = (message for message in ears.heard if isinstance(message, CheckpointFailed))
    assert (unsaved.number, unsaved.problem) == (7, "a defect of the store")
    assert ears.saved() == [8]
    assert stored(gate, 8, tmp_path) == "b"


def test_what_cannot_be_kept_is_refused_where_it_was_made(session: Session, gate: Gate) -> None:
    gate.opened.set()
    with session.new_checkpoint() as folder:
        (folder / "link").symlink_to("/etc/passwd")
        with pytest.raises(SpecError, match="symbolic link"):
            session.report({"loss": 1.0}, folder, False)


def test_what_is_not_reported_is_removed_when_the_next_one_begins(session: Session, tmp_path: Path) -> None:
    with session.new_checkpoint() as folder:
        (folder / "text").write_text("a")
    with session.new_checkpoint() as another:
        assert not folder.exists()
    assert another.exists()
    session.finish()
    assert list((tmp_path / "staging").iterdir()) == []


def test_what_an_exception_left_half_written_is_removed(session: Session) -> None:
    given = session.new_checkpoint()
    folder = given.__enter__()
    (folder / "text").write_text("a")
    assert not given.__exit__(OSError, OSError("the disk is full"), None), "it is raised on"
    assert not folder.exists()


def test_it_may_be_reported_after_the_with(session: Session, gate: Gate, ears: Ears, tmp_path: Path) -> None:
    gate.opened.set()
    for text in "ab":
        with session.new_checkpoint() as folder:
            (folder / "text").write_text(text)
        session.report({"loss": 1.0}, folder, False)
        assert not folder.exists(), "it was taken over, not copied"
    session.finish()
    assert stored(gate, ears.saved()[-1], tmp_path) == "b"


def test_another_threads_folder_is_left_alone(session: Session) -> None:
    with session.new_checkpoint() as folder:
        pass
    other = threading.Thread(target=lambda: session.new_checkpoint().__enter__())
    other.start()
    other.join()
    assert folder.exists()


def test_the_size_does_not_matter(session: Session, gate: Gate) -> None:
    """It is the same folder, renamed: nothing is copied."""
    with session.new_checkpoint() as folder:
        (folder / "text").write_text("a")
        inode = (folder / "text").stat().st_ino
        session.report({"loss": 1.0}, folder, False)
        (taken,) = folder.parent.glob("*-taken/text")
        assert taken.stat().st_ino == inode
    gate.opened.set()


def test_what_killed_processes_left_is_removed_and_what_lives_stays(
    session: Session, tmp_path: Path, gate: Gate
) -> None:
    gate.opened.set()
    dead, alive = (tmp_path / "staging" / f"{staging._PREFIX}{name}" for name in ("dead", "alive"))
    for top in (dead, alive):
        (top / "1-taken").mkdir(parents=True)
        (top / staging._LOCK).touch()
    with open(alive / staging._LOCK, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hand_over(session, "a")
        assert not dead.exists()
        assert alive.exists()


def test_another_attempt_goes_on_from_it(session: Session, gate: Gate, ears: Ears, tmp_path: Path) -> None:
    gate.opened.set()
    hand_over(session, "a")
    session.finish()
    place = SweepPlace(sweep_id="s", storage_path=str(tmp_path / "store"), resources={}, metric="loss")
    uri = f"{gate.inner.url}/s/checkpoints/00003/7"
    later = Session(replace(JOB, attempt=3, checkpoint=uri, next_checkpoint=100), place, ears)
    checkpoint = later.get_checkpoint()
    assert checkpoint is not None
    with checkpoint as folder:
        assert (folder / "text").read_text() == "a"
    assert os.listdir(tmp_path / "staging") == []
    restore_uri(uri, tmp_path / "out")


def test_two_ways_at_once_refer_to_each_other(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    """One thread waits while its directory is stored, another hands one over: that waits for the first."""
    source = tmp_path / "foreign"
    source.mkdir()
    (source / "body").write_bytes(b"x" * 100_000)
    session.answer(1)
    own = threading.Thread(target=session.report, args=({"loss": 1.0}, source, True))
    own.start()
    assert gate.reached.wait(LONG_S)

    def hand_another_over() -> None:
        with session.new_checkpoint() as folder:
            (folder / "body").write_bytes(b"x" * 100_000)
            (folder / "head").write_bytes(b"y" * 70_000)
            session.report({"loss": 1.0}, folder, False)

    other = threading.Thread(target=hand_another_over)
    other.start()
    other.join(0.2)  # a lock that is missing would let it begin by then, with no parent
    began = time.monotonic()
    gate.opened.set()
    own.join(LONG_S)
    assert time.monotonic() - began < PAUSE_S / 2, (
        "an upload that a thread waits for does not pause for another"
    )
    other.join(LONG_S)
    session.finish()
    assert ears.saved() == [7, 8]
    manifest = CheckpointStore(gate.inner, "s").read_manifest(f"{gate.inner.url}/s/checkpoints/00003/8")
    assert manifest.new_bytes == 70_000
