"""Checkpoints from the side of user code: one that cannot be stored, and which one is given back."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from raysweep.errors import CheckpointDamagedError, RaysweepError, TrialStopped
from raysweep.messages import (
    CheckpointCommitted,
    CheckpointDamaged,
    CheckpointFailed,
    Job,
    TrialBusy,
    TrialReported,
)
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.trial.session import StoredAt
from raysweep.worker.link import SocketLink
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.wire import FROM_WORKER, read_frames

JOB = Job(trial=3, attempt=2, config={}, seed=1, checkpoint=None, iteration=0, next_checkpoint=7)


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_checkpoint_that_cannot_be_stored_is_said(
    tmp_path: Path, link: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("no folder can be made below this")
    source = tmp_path / "source"
    source.mkdir()
    # Two minutes in earnest.
    monkeypatch.setitem(CheckpointStore.__init__.__kwdefaults__, "give_up_after_s", 0.3)
    place = SweepPlace(sweep_id="s-1", storage_path=str(blocked), resources={})
    sender = SocketLink(link[0])
    session = Session(JOB, place, sender)
    (source / "f").write_text("x")
    session.report({"loss": 1.0}, source, False)
    session.finish()
    session.report({"loss": 0.5}, None, False)
    sender.close()
    link[0].shutdown(socket.SHUT_RDWR)
    messages = [message for frame in read_frames(link[1], FROM_WORKER) for message in frame]
    said = [message for message in messages if not isinstance(message, TrialBusy)]
    assert [type(message) for message in said] == [TrialReported, CheckpointFailed, TrialReported]
    unsaved = said[1]
    assert isinstance(unsaved, CheckpointFailed)
    assert (unsaved.trial, unsaved.attempt, unsaved.number) == (3, 2, 7)
    assert str(blocked) in unsaved.problem


def flush(session: Session) -> bool:
    """Wait for what it stores in the background."""
    return session._saver.flush()


class Trial:
    """A session whose storage is at hand, as the controller's keep policy has it."""

    def __init__(self, storage: Path, sender: SocketLink) -> None:
        self.checkpoints = CheckpointStore(open_store(str(storage)), "s-1")
        self.first = self._store("first", 0)
        place = SweepPlace(sweep_id="s-1", storage_path=str(storage), resources={})
        self.session = Session(replace(JOB, checkpoint=self.first), place, sender)
        self.sender = sender

    def _store(self, text: str, number: int) -> str:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "text").write_text(text)
            return self.checkpoints.save("00003", number, folder).uri

    def report(self, text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "text").write_text(text)
            self.session.report({"loss": 1.0}, folder, False)
        assert flush(self.session)

    def uri(self, number: int) -> str:
        return self.checkpoints.uri("00003", number)


def read(checkpoint: AbstractContextManager[Path] | None) -> str:
    assert checkpoint is not None
    with checkpoint as folder:
        return (folder / "text").read_text()


@pytest.fixture
def trial(tmp_path: Path, link: tuple[socket.socket, socket.socket]) -> Iterator[Trial]:
    sender = SocketLink(link[0])
    trial = Trial(tmp_path / "storage", sender)
    yield trial
    trial.session.finish()
    sender.close()


def test_the_newest_checkpoint_comes_back_however_late_it_is_asked_for(trial: Trial) -> None:
    """`keep_last` lets go of the one that the attempt began from as soon as there is a newer one."""
    early = trial.session.get_checkpoint()
    assert read(trial.session.get_checkpoint()) == "first"
    trial.report("second")
    trial.checkpoints.delete(trial.first)
    assert read(trial.session.get_checkpoint()) == "second"
    trial.report("third")
    trial.checkpoints.delete(trial.uri(7))
    assert read(trial.session.get_checkpoint()) == "third"
    assert read(early) == "third", "asked for early, entered late"


def test_a_checkpoint_that_is_let_go_of_while_it_is_read_is_read_anew(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User code may save on one thread while another restores."""
    restore = CheckpointStore.restore

    def restore_late(store: CheckpointStore, uri: str, target: Path, **more: Any) -> Any:
        if uri == trial.first:
            trial.report("second")
            trial.checkpoints.delete(trial.first)
        return restore(store, uri, target, **more)

    monkeypatch.setattr(CheckpointStore, "restore", restore_late)
    assert read(trial.session.get_checkpoint()) == "second"


def test_whoever_removes_a_restored_checkpoint_is_not_told_of_it(trial: Trial) -> None:
    checkpoint = trial.session.get_checkpoint()
    assert checkpoint is not None
    with checkpoint as folder:
        shutil.rmtree(folder.parent)


def test_the_newest_checkpoint_is_refused_if_it_is_damaged_and_nothing_older_is_given(trial: Trial) -> None:
    trial.report("second")
    trial.checkpoints.delete(trial.uri(7))
    with pytest.raises(CheckpointDamagedError, match=r"00003/7.*restore the file from a backup"):
        read(trial.session.get_checkpoint())


def test_a_damaged_one_ends_the_attempt_where_there_is_an_older_one(
    trial: Trial, link: tuple[socket.socket, socket.socket]
) -> None:
    """Whatever the trainable does about CheckpointDamagedError: the next attempt has the older one."""
    trial.checkpoints.delete(trial.first)
    sender = SocketLink(link[0])
    place = SweepPlace(sweep_id="s-1", storage_path=trial.checkpoints.store.url, resources={})
    session = Session(replace(JOB, checkpoint=trial.first, has_older=True), place, sender)
    with pytest.raises(TrialStopped):
        read(session.get_checkpoint())
    sender.close()
    link[0].shutdown(socket.SHUT_RDWR)
    messages = [message for frame in read_frames(link[1], FROM_WORKER) for message in frame]
    (damaged,) = (message for message in messages if isinstance(message, CheckpointDamaged))
    assert damaged.uri == trial.first
    assert "there is no such checkpoint" in damaged.problem


@pytest.mark.parametrize("is_told_first", [True, False])
def test_nothing_counts_of_an_attempt_that_goes_back_and_does_not_end(
    trial: Trial, link: tuple[socket.socket, socket.socket], tmp_path: Path, is_told_first: bool
) -> None:
    """It swallows TrialStopped and begins anew, while its node is about to go: its reports would count."""
    trial.checkpoints.delete(trial.first)
    sender = SocketLink(link[0])
    place = SweepPlace(sweep_id="s-1", storage_path=trial.checkpoints.store.url, resources={})
    session = Session(replace(JOB, checkpoint=trial.first, has_older=True), place, sender)
    if is_told_first:
        session.stop("preempt", wants_checkpoint=True, allows="checkpoint")
    with pytest.raises(TrialStopped, match="damage"):
        read(session.get_checkpoint())
    if not is_told_first:
        session.stop("preempt", wants_checkpoint=True, allows="checkpoint")
    assert not session.should_checkpoint
    for checkpoint in (None, tmp_path):
        with pytest.raises(TrialStopped, match="damage"):
            session.report({"loss": 1.0}, checkpoint, False)
    with pytest.raises(TrialStopped, match="damage"):
        session.get_checkpoint()
    session.finish()
    sender.close()
    link[0].shutdown(socket.SHUT_RDWR)
    messages = [message for frame in read_frames(link[1], FROM_WORKER) for message in frame]
    assert [type(message) for message in messages if not isinstance(message, TrialBusy)] == [
        CheckpointDamaged
    ]


def test_one_that_the_attempt_saved_itself_is_no_reason_to_go_back(trial: Trial) -> None:
    """The attempt that began from the one before has continued since."""
    trial.session.job = replace(trial.session.job, has_older=True)
    trial.report("second")
    trial.checkpoints.delete(trial.uri(7))
    with pytest.raises(CheckpointDamagedError):
        read(trial.session.get_checkpoint())


def test_the_address_of_what_user_code_has_stored_is_a_checkpoint(
    trial: Trial, link: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "text").write_text("stored by user code")
    with tempfile.TemporaryDirectory() as folder:  # one that is still uploaded comes before it
        (Path(folder) / "text").write_text("second")
        trial.session.report({"loss": 2.0}, folder, False)
    trial.session.report({"loss": 1.0}, StoredAt(str(tmp_path / "theirs")), False)
    assert read(trial.session.get_checkpoint()) == "stored by user code"
    trial.report("third")
    assert read(trial.session.get_checkpoint()) == "third"
    with pytest.raises(RaysweepError, match=r"^report\(checkpoint_uri=…\): nothing is stored at '/no/where'"):
        trial.session.report({"loss": 0.5}, StoredAt("/no/where"), False)
    saved = [message for message in said(trial, link) if isinstance(message, CheckpointCommitted)]
    assert [(each.number, each.report) for each in saved] == [(7, 0), (8, 1), (9, 2)]
    assert saved[1].size_bytes == len("stored by user code")


def test_an_address_that_cannot_be_stored_is_said(
    trial: Trial, link: tuple[socket.socket, socket.socket]
) -> None:
    """The trial survives it, as any other checkpoint that could not be stored."""
    taken = trial.checkpoints.store
    taken.put_if_absent("s-1/checkpoints/00003/7.json", b"somebody else's")
    trial.session.report({"loss": 1.0}, StoredAt(taken.url), False)
    assert read(trial.session.get_checkpoint()) == "first"
    (unsaved,) = (message for message in said(trial, link) if isinstance(message, CheckpointFailed))
    assert (unsaved.number, "exists already" in unsaved.problem) == (7, True)


def said(trial: Trial, link: tuple[socket.socket, socket.socket]) -> list[Any]:
    """What the session has said, to the end."""
    trial.session.finish()
    trial.sender.close()
    link[0].shutdown(socket.SHUT_RDWR)
    return [message for frame in read_frames(link[1], FROM_WORKER) for message in frame]


BODY = b"b" * 100_000


class TestSharing:
    """What a trial's checkpoints have in common is stored once."""

    def report(self, session: Session, folder: Path, head: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "body").write_bytes(BODY)
        (folder / "head").write_bytes(head.encode() * 70_000)
        session.report({"loss": 1.0}, folder, False)

    def store(self, session: Session, folder: Path, head: str) -> None:
        self.report(session, folder, head)
        assert flush(session)

    def new_bytes(self, trial: Trial, number: int) -> int:
        trial.checkpoints.verify(trial.uri(number))
        return trial.checkpoints.read_manifest(trial.uri(number)).new_bytes

    def test_what_an_earlier_one_holds_is_not_stored_again(self, trial: Trial, tmp_path: Path) -> None:
        for number, head in enumerate("abc", start=7):
            self.store(trial.session, tmp_path / "in", head)
            if number > 7:
                trial.checkpoints.delete(trial.uri(number - 1))  # as `keep_last: 1` has it
        assert trial.checkpoints.numbers("00003") == (0, 9)
        assert self.new_bytes(trial, 9) == 70_000

    def test_an_attempt_goes_on_from_the_one_before(
        self, trial: Trial, link: tuple[socket.socket, socket.socket], tmp_path: Path
    ) -> None:
        self.store(trial.session, tmp_path / "in", "a")
        place = SweepPlace(sweep_id="s-1", storage_path=trial.checkpoints.store.url, resources={})
        sender = SocketLink(link[0])
        job = replace(JOB, attempt=3, checkpoint=trial.uri(7), next_checkpoint=100)
        self.store(Session(job, place, sender), tmp_path / "in", "b")
        assert self.new_bytes(trial, 100) == 70_000
        sender.close()

    def test_nothing_is_shared_with_another_trial(
        self, trial: Trial, link: tuple[socket.socket, socket.socket], tmp_path: Path
    ) -> None:
        """Its owner deletes it when it likes."""
        self.store(trial.session, tmp_path / "in", "a")
        place = SweepPlace(sweep_id="s-1", storage_path=trial.checkpoints.store.url, resources={})
        sender = SocketLink(link[0])
        job = replace(JOB, trial=4, checkpoint=trial.uri(7), next_checkpoint=0)
        self.store(Session(job, place, sender), tmp_path / "in", "a")
        for number in trial.checkpoints.numbers("00003"):
            trial.checkpoints.delete(trial.uri(number))
        trial.checkpoints.verify(trial.checkpoints.uri("00004", 0))
        sender.close()

    def test_two_threads_that_save_at_once(self, trial: Trial, tmp_path: Path) -> None:
        """Each refers to the newest one, which stays until the next is committed."""
        threads = [
            threading.Thread(target=self.report, args=(trial.session, tmp_path / f"in-{head}", head))
            for head in "abcdef"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert flush(trial.session)
        numbers = trial.checkpoints.numbers("00003")
        assert numbers == (0, *range(7, 13))
        assert [self.new_bytes(trial, number) for number in numbers[2:]] == [70_000] * 5
        for number in numbers[:-1]:
            trial.checkpoints.delete(trial.uri(number))
            trial.checkpoints.verify(trial.uri(numbers[-1]))
