"""System calls with the GIL held give what Python's own functions give."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from raysweep.worker.process.syscalls import file_of, has_children, unsent_bytes, working_directory


def test_a_child_is_seen_while_it_runs_and_once_dead_until_it_is_waited_for() -> None:
    others = has_children()
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert has_children()
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert has_children()
    child.wait()
    assert has_children() is others


def test_the_working_directory_is_none_once_it_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hör"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert working_directory() == os.fsencode(folder)
    folder.rmdir()
    assert working_directory() is None


def test_a_descriptor_leads_to_its_file_wherever_it_was_duplicated(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as file, open(tmp_path / "b", "wb") as other:
        file.write(b"12345")
        file.flush()
        found = file_of(file.fileno())
        assert found is not None
        assert (found.inode, found.size_bytes) == (os.stat(file.name).st_ino, 5)
        copy = os.dup(file.fileno())
        assert file_of(copy) == found
        os.close(copy)
        assert file_of(copy) is None
        elsewhere = file_of(other.fileno())
        assert elsewhere is not None
        assert elsewhere[:2] != found[:2]
    null = os.open(os.devnull, os.O_RDONLY)
    device = file_of(null)
    os.close(null)
    assert device is not None
    assert device.device != found.device


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_what_a_socket_has_not_sent_is_counted_and_a_closed_one_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        assert unsent_bytes(near.fileno()) == 0
        near.setblocking(False)
        with suppress(BlockingIOError):
            while near.send(bytes(2**20)):
                pass
        assert unsent_bytes(near.fileno()) > 0
        far.close()
        number = near.fileno()
        near.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            unsent_bytes(number)
