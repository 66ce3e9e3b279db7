"""No place for copies on the node's disk: checkpoints are stored all the same, and it is said."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from raysweep.messages import CheckpointFailed
from raysweep.worker.checkpoints import copying, staging
from raysweep.worker.checkpoints.uploader import PAUSE_S
from raysweep.worker.session import Session
from tests.unit.worker.handed_over import Ears, Gate, ears, gate, hand_over, make, notes, restored, session

__all__ = ["ears", "gate", "session"]  # fixtures


class Full:
    """The disk of the staging folders: `os` functions that fail below it while `is_full`."""

    def __init__(self, top: Path, patch: pytest.MonkeyPatch, step: str, number: int) -> None:
        self.is_full = True
        self.fired = 0
        self._top = str(top)
        self._number = number
        where, name = {
            "open lock": (staging, "open"),
            "mkdtemp": (staging.tempfile, "mkdtemp"),
            "mkdir": (Path, "mkdir"),
            "rename": (staging.os, "rename"),
            "clone": (copying, "_clone"),
            "kernel copy": (copying, "_copy_in_kernel"),
            "write": (copying.os, "write"),
        }[step]
        real: Any = open if name == "open" else getattr(where, name)
        if step == "write":
            patch.setattr(copying, "_copy_in_kernel", lambda *_: 0)

        def call(*args: Any, **more: Any) -> Any:
            if self.is_full and self._is_here(step, args, more):
                self.fired += 1
                raise OSError(self._number, os.strerror(self._number))
            return real(*args, **more)

        patch.setattr(where, name, call, raising=False)

    def _is_here(self, step: str, args: tuple[Any, ...], more: dict[str, Any]) -> bool:
        if step in ("clone", "kernel copy", "write"):
            target = args[0 if step == "write" else 1]
            return os.readlink(f"/proc/self/fd/{target}").startswith(self._top)
        return str(more.get("dir") or args[0]).startswith(self._top)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["full", "quota"])
@pytest.mark.parametrize("step", ["mkdtemp", "open lock", "mkdir", "clone", "kernel copy", "write"])
def test_a_directory_that_cannot_be_copied_is_stored_while_the_trial_waits(
    step: str,
    number: int,
    session: Session,
    gate: Gate,
    ears: Ears,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate.opened.set()
    disk = Full(tmp_path / "staging", monkeypatch, step, number)
    source = make(tmp_path / "in", a="1", sub__b="b")
    for _ in range(2):
        session.report({"loss": 1.0}, source, False)
    assert disk.fired
    assert ears.saved() == [7, 8], "they are there when report returns"
    (note,) = set(notes(ears))
    assert f"{tmp_path / 'staging'} has no place for them ({os.strerror(number)})" in note
    assert "RAYSWEEP_STAGING" in note
    disk.is_full = False
    make(source, a="2")
    gate.opened.clear()
    session.report({"loss": 1.0}, source, False)
    assert ears.saved() == [7, 8], "there is room: it is stored in the background again"
    gate.opened.set()
    session.finish()
    assert ears.saved() == [7, 8, 9]
    assert restored(gate, 8, tmp_path) == {"a": b"1", "sub/b": b"b"}
    assert restored(gate, 9, tmp_path) == {"a": b"2", "sub/b": b"b"}
    assert not [message for message in ears.heard if isinstance(message, CheckpointFailed)]
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_folder_that_cannot_be_taken_over_is_stored_from_where_it_is(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.opened.set()
    hand_over(session, "a")
    assert session._saver.flush()
    disk = Full(tmp_path / "staging", monkeypatch, "rename", errno.ENOSPC)
    began = time.monotonic()
    hand_over(session, "b")
    assert time.monotonic() - began < PAUSE_S / 2, "it does not wait for its own pause"
    assert disk.fired
    assert ears.saved() == [7, 8]
    assert len(notes(ears)) == 1
    assert restored(gate, 8, tmp_path) == {"text": b"b"}


def test_those_before_it_are_stored_first(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is what fills the disk; and they are committed in their order."""
    source = make(tmp_path / "in", a="1")
    session.report({"loss": 1.0}, source, False)
    disk = Full(tmp_path / "staging", monkeypatch, "clone", errno.ENOSPC)
    threading.Timer(0.1, gate.opened.set).start()
    make(source, a="2")
    session.report({"loss": 1.0}, source, False)
    assert disk.fired
    assert ears.saved() == [7, 8]
    assert restored(gate, 7, tmp_path) == {"a": b"1"}


def test_a_new_folder_waits_for_room(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would not fit beside those that wait is not begun before they are stored."""
    hand_over(session, "a" * 1000)
    monkeypatch.setattr(staging.Staging, "free_bytes", lambda self: 999)
    threading.Timer(0.1, gate.opened.set).start()
    with session.new_checkpoint():
        assert ears.saved() == [7]


def test_a_new_folder_that_has_no_place_beside_those_that_wait_is_made_after_them(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(session, "a")
    real = staging.Staging.make_folder

    def make_folder(self: staging.Staging) -> Path:
        if not ears.saved():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self)

    monkeypatch.setattr(staging.Staging, "make_folder", make_folder)
    threading.Timer(0.1, gate.opened.set).start()
    with session.new_checkpoint() as folder:
        assert folder.is_dir()
    monkeypatch.setattr(ears, "saved", list)
    with pytest.raises(OSError, match="No space left"), session.new_checkpoint():
        pass


_LIMITED = """
import os, resource, sys
from pathlib import Path
import raysweep as rs
from raysweep.testing import run_trial

LIMIT = 5 * 2**20

def train(config):
    folder = Path(config["folder"])
    for step in range(2):
        (folder / "head").write_text(f"{step}")
        rs.report({"loss": 1.0}, checkpoint=folder)
    checkpoint = rs.get_checkpoint()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with checkpoint as found:
        print((found / "head").read_text(), (found / "body").stat().st_size)

folder = Path(sys.argv[1])
(folder / "body").write_bytes(os.urandom(2 * LIMIT))
resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
(attempt,) = run_trial(train, {"folder": str(folder)})
print(attempt.checkpoints, attempt.end, attempt.error, *attempt.notes, sep="|")
"""


def test_files_larger_than_this_process_may_write_are_stored(tmp_path: Path) -> None:
    """By the kernel's own refusal: a copy would be too large, its chunks in the store are not."""
    (tmp_path / "in").mkdir()
    script = tmp_path / "limited.py"
    script.write_text(textwrap.dedent(_LIMITED))
    command = [sys.executable, str(script), str(tmp_path / "in")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    restored, told = done.stdout.splitlines()
    assert restored == f"1 {10 * 2**20}"
    assert told.startswith("(0, 1)|returned|None|checkpoints were stored while the trial waited")
    assert "File too large" in told
