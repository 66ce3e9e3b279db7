"""Directories of the user's: as they were at the report, copied as little as possible, whatever fails."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError, TrialStopped
from raysweep.messages import CheckpointFailed, Interrupt, Stop
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.worker.checkpoints import captures, copying
from raysweep.worker.checkpoints.captures import Captures, NoPlaceError, mapped_inodes
from raysweep.worker.checkpoints.uploader import MAX_WAITING
from raysweep.worker.host.cuda_driver import has_opened_gpu
from raysweep.worker.session import Session
from tests.unit.worker.handed_over import (
    JOB,
    LONG_S,
    Ears,
    Gate,
    ears,
    gate,
    make,
    notes,
    restored,
    session,
    settled,
    until,
)

__all__ = ["ears", "gate", "session", "settled"]  # fixtures

OLD_NS = 10**18


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are copied."""
    names: list[str] = []

    def copy_file(source: Path, target: Path, go_on: Any) -> None:
        names.append(source.name)
        copying.copy_file(source, target, go_on)

    monkeypatch.setattr(captures, "copy_file", copy_file)
    return names


def test_a_directory_is_stored_as_it_was_at_the_report(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    source = make(tmp_path / "in", a="old", sub__b="b")
    (source / "empty").mkdir()
    (source / "a").chmod(0o755)
    session.report({"loss": 1.0}, source, False)
    assert ears.saved() == [], "report returns before anything is stored"
    with open(source / "a", "r+") as file:  # in place: a hard link would show it
        file.write("new")
    (source / "sub" / "b").unlink()
    gate.opened.set()
    session.finish()
    assert restored(gate, 7, tmp_path) == {"a": b"old", "sub/b": b"b"}
    assert (tmp_path / "out-7" / "empty").is_dir()
    assert os.access(tmp_path / "out-7" / "a", os.X_OK)
    assert not os.access(tmp_path / "out-7" / "sub" / "b", os.X_OK)
    assert list((tmp_path / "staging").iterdir()) == [], "nothing is left"


@pytest.mark.usefixtures("settled")
def test_a_file_that_has_not_changed_is_neither_copied_nor_read_again(
    session: Session, gate: Gate, copied: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.opened.set()
    source = make(tmp_path / "in", body=b"b" * 200_000, sub__small="s", head="0")
    session.report({"loss": 1.0}, source, False)
    assert session._saver.flush()
    read: list[Path] = []
    from raysweep.storage.checkpoints import uploads

    real = uploads.read_piece

    def read_piece(path: Path, offset: int, into: memoryview) -> None:
        read.append(path)
        real(path, offset, into)

    monkeypatch.setattr(uploads, "read_piece", read_piece)
    copied.clear()
    make(source, head="1")
    session.report({"loss": 1.0}, source, False)
    session.finish()
    assert copied == ["head"]
    assert {path.name for path in read} == {"head"}
    assert restored(gate, 8, tmp_path) == {"body": b"b" * 200_000, "sub/small": b"s", "head": b"1"}
    CheckpointStore(gate.inner, "s").delete(f"{gate.inner.url}/s/checkpoints/00003/7")
    CheckpointStore(gate.inner, "s").verify(f"{gate.inner.url}/s/checkpoints/00003/8")


@pytest.mark.usefixtures("settled")
def test_what_is_still_on_its_way_is_not_copied_again_either(
    session: Session, gate: Gate, ears: Ears, copied: list[str], tmp_path: Path
) -> None:
    """Also where the user changes the file afterwards: the second name is that of the copy."""
    source = make(tmp_path / "in", body=b"b" * 200_000, head="0")
    for number in range(3):
        make(source, head=f"{number}")
        session.report({"loss": 1.0}, source, False)
    with open(source / "body", "r+b") as file:
        file.write(b"changed")
    assert copied == ["body", "head", "head", "head"]
    gate.opened.set()
    session.finish()
    for number in range(3):
        expected = {"body": b"b" * 200_000, "head": b"%d" % number}
        assert restored(gate, 7 + number, tmp_path) == expected
    manifest = CheckpointStore(gate.inner, "s").read_manifest(f"{gate.inner.url}/s/checkpoints/00003/9")
    assert manifest.new_bytes == 1


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("broken", [{7}, {8}, {7, 8}, {8, 9}, {7, 8, 9}])
def test_no_checkpoint_misses_what_one_before_it_could_not_store(
    broken: set[int], session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    source = make(tmp_path / "in", body=b"b" * 200_000)
    gate.opened.set()
    for number in range(7, 12):
        gate.fails = number in broken
        make(source, head=f"{number}")
        session.report({"loss": 1.0}, source, False)
        session._saver.flush()
    session.finish()
    unsaved = {message.number for message in ears.heard if isinstance(message, CheckpointFailed)}
    assert unsaved == broken
    for number in set(range(7, 12)) - broken:
        assert restored(gate, number, tmp_path) == {"body": b"b" * 200_000, "head": b"%d" % number}


@pytest.mark.usefixtures("settled")
def test_directories_that_take_turns_are_both_whole(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    """A file of the one is not in the checkpoint between: it is copied again."""
    gate.opened.set()
    sources = [make(tmp_path / name, body=name * 70_000) for name in "ab"]
    for number in range(4):
        session.report({"loss": 1.0}, sources[number % 2], False)
        session._saver.flush()
        if number:
            CheckpointStore(gate.inner, "s").delete(f"{gate.inner.url}/s/checkpoints/00003/{6 + number}")
        assert restored(gate, 7 + number, tmp_path) == {"body": b"ab"[number % 2 :][:1] * 70_000}
    assert ears.saved() == [7, 8, 9, 10]


@pytest.mark.usefixtures("settled")
def test_what_one_on_its_way_refers_to_is_not_copied_again_either(
    session: Session, gate: Gate, copied: list[str], tmp_path: Path
) -> None:
    gate.opened.set()
    source = make(tmp_path / "in", body=b"b" * 200_000, head="0")
    session.report({"loss": 1.0}, source, False)
    assert session._saver.flush()
    gate.opened.clear()
    for number in (1, 2):
        make(source, head=f"{number}")
        session.report({"loss": 1.0}, source, False)
    assert copied == ["body", "head", "head", "head"]
    gate.opened.set()
    session.finish()
    assert restored(gate, 9, tmp_path) == {"body": b"b" * 200_000, "head": b"2"}


def test_a_file_that_was_written_just_now_is_not_trusted(
    session: Session, gate: Gate, copied: list[str], tmp_path: Path
) -> None:
    """Two changes within one tick of a file system's clock look the same."""
    gate.opened.set()
    source = make(tmp_path / "in", a="1")
    for _ in range(2):
        session.report({"loss": 1.0}, source, False)
        session._saver.flush()
    assert copied == ["a", "a"]


@pytest.mark.usefixtures("settled")
def test_what_is_written_through_a_mapping_is_seen(session: Session, gate: Gate, tmp_path: Path) -> None:
    """The times of a mapped file change late or never."""
    gate.opened.set()
    source = make(tmp_path / "in", a=b"x" * 8192)
    with open(source / "a", "r+b") as file, mmap.mmap(file.fileno(), 8192) as mapped:
        for number in range(3):
            mapped[5000] = number
            status = os.stat(source / "a")
            session.report({"loss": 1.0}, source, False)
            assert session._saver.flush()
            assert restored(gate, 7 + number, tmp_path)["a"][5000] == number, status


@pytest.mark.usefixtures("settled")
def test_files_with_one_inode_are_all_there(session: Session, gate: Gate, tmp_path: Path) -> None:
    gate.opened.set()
    source = make(tmp_path / "in", a=b"x" * 70_000)
    os.link(source / "a", source / "b")
    for _ in range(3):
        session.report({"loss": 1.0}, source, False)
        session._saver.flush()
    session.finish()
    assert restored(gate, 9, tmp_path) == {"a": b"x" * 70_000, "b": b"x" * 70_000}


@pytest.mark.usefixtures("settled")
def test_a_mode_that_changed_is_kept(session: Session, gate: Gate, tmp_path: Path) -> None:
    gate.opened.set()
    source = make(tmp_path / "in", a="x")
    session.report({"loss": 1.0}, source, False)
    session._saver.flush()
    (source / "a").chmod(0o755)
    session.report({"loss": 1.0}, source, False)
    session.finish()
    restored(gate, 8, tmp_path)
    assert os.access(tmp_path / "out-8" / "a", os.X_OK)


@pytest.mark.parametrize("times", [1, captures.TRIES - 1, captures.TRIES + 5])
def test_a_file_that_changes_while_it_is_copied_is_copied_again_and_said_in_the_end(
    times: int,
    session: Session,
    gate: Gate,
    ears: Ears,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate.opened.set()
    source = make(tmp_path / "in", a="0")
    written = 0

    def copy_file(source: Path, target: Path, go_on: Any) -> None:
        nonlocal written
        copying.copy_file(source, target, go_on)
        if written < times:
            written += 1
            with open(source, "a") as file:
                file.write(f"{written}")

    monkeypatch.setattr(captures, "copy_file", copy_file)
    session.report({"loss": 1.0}, source, False)
    session.finish()
    is_steady = times < captures.TRIES
    expected = b"0123456789"[: (times if is_steady else captures.TRIES - 1) + 1]
    assert restored(gate, 7, tmp_path) == {"a": expected}
    assert [note.partition(" changed")[0] for note in notes(ears)] == (
        [] if is_steady else ["checkpoint 7: a"]
    )


def test_a_file_that_goes_away_meanwhile_is_the_trials_error(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make(tmp_path / "in", a="x", b="y")

    def copy_file(source: Path, target: Path, go_on: Any) -> None:
        (source.parent / "b").unlink(missing_ok=True)
        copying.copy_file(source, target, go_on)

    monkeypatch.setattr(captures, "copy_file", copy_file)
    with pytest.raises(SpecError, match=r"in/b cannot be read .*leave the directory as it is"):
        session.report({"loss": 1.0}, source, False)
    (top,) = (tmp_path / "staging").iterdir()
    assert [path.name for path in top.iterdir()] == ["lock"], "nothing of it is left"


def test_an_interruption_ends_a_copy(
    session: Session, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take long: the trial does not first copy the rest."""
    source = make(tmp_path / "in", a="x", b="y")
    names = []

    def copy_file(source: Path, target: Path, go_on: Any) -> None:
        names.append(source.name)
        session.tell(Stop(*JOB.who, reason="limit"))
        session.tell(Interrupt(*JOB.who))
        copying.copy_file(source, target, go_on)

    monkeypatch.setattr(captures, "copy_file", copy_file)
    with pytest.raises(TrialStopped):
        session.report({"loss": 1.0}, source, False)
    assert names == ["a"]
    gate.opened.set()


def test_waiting_for_the_commit_copies_nothing(
    session: Session, gate: Gate, ears: Ears, copied: list[str], tmp_path: Path
) -> None:
    gate.opened.set()
    session.answer(100)
    source = make(tmp_path / "in", a="x")
    session.report({"loss": 1.0}, source, True)
    assert ears.saved() == [7]
    assert copied == []
    assert source.exists()


def test_a_directory_waits_its_turn_like_any_other(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    """Three at most lie on the disk."""
    source = make(tmp_path / "in", a="x")
    session.report({"loss": 1.0}, source, False)
    assert gate.reached.wait(LONG_S)
    for _ in range(MAX_WAITING):
        session.report({"loss": 1.0}, source, False)
    (top,) = (tmp_path / "staging").iterdir()
    one_more = threading.Thread(target=session.report, args=({"loss": 1.0}, source, False))
    busy = len(ears.busy())
    one_more.start()
    until(lambda: len(ears.busy()) == busy + 1)
    assert len([path for path in top.iterdir() if path.is_dir()]) == 1 + MAX_WAITING
    gate.opened.set()
    one_more.join(LONG_S)
    session.finish()
    assert ears.saved() == [7, 8, 9, 10]


# -- copying ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_kernel_copy", [True, False])
@pytest.mark.parametrize("size_bytes", [0, 1, 3 * 2**20 + 17])
def test_a_copy_is_the_same_bytes(
    has_kernel_copy: bool, size_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_kernel_copy:
        monkeypatch.setattr(copying, "_copy_in_kernel", refuse(OSError(18, "Invalid cross-device link")))
    data = os.urandom(size_bytes)
    (tmp_path / "a").write_bytes(data)
    copying.copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == data


def test_a_copy_that_the_kernel_leaves_off_is_finished_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(100_000)
    (tmp_path / "a").write_bytes(data)

    def copy(read_from: int, write_to: int, offset: int) -> int:
        if offset:
            raise OSError(5, "Input/output error")
        return os.copy_file_range(read_from, write_to, 10_000, 0, 0)

    monkeypatch.setattr(copying, "_copy_in_kernel", copy)
    copying.copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == data


def refuse(error: OSError) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        raise error

    return call


@pytest.mark.parametrize("step", ["_clone", "_copy_in_kernel"])
def test_a_full_disk_leaves_nothing_behind(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, step, refuse(OSError(28, "No space left on device")))
    (tmp_path / "folders").mkdir()
    folders = (tmp_path / "folders" / f"{number}" for number in range(9))

    def new_folder() -> Path:
        folder = next(folders)
        folder.mkdir()
        return folder

    taking = Captures(new_folder, lambda: None)
    with pytest.raises(NoPlaceError, match="No space left on device"):
        taking.take(make(tmp_path / "in", a="x"))
    assert list((tmp_path / "folders").iterdir()) == []


def test_a_mapped_file_whose_name_is_no_utf_8_is_seen(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.bin")
    with open(path, "wb+") as file:
        file.write(bytes(4096))
        file.flush()
        with mmap.mmap(file.fileno(), 4096):
            assert os.stat(path).st_ino in mapped_inodes()
            assert not has_opened_gpu()
