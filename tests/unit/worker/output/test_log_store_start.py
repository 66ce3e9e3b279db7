"""A worker sees to it that there is a keeper: one, that outlives it, and another if that one dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from raysweep.messages import Hello
from raysweep.storage.objects.local import LocalStore
from raysweep.worker.output import log_store_start, spool
from raysweep.worker.output.spool import make_mark, make_spool, spool_folder
from raysweep.worker.wire import HELLO, read_frames

CODE = """
import sys, time
from raysweep.worker.output import log_store_start
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.setup import WorkerSetup
host, port, store = sys.argv[1:]
log_store_start.LOOK_S, log_store_start.START_S = 0.1, 0.5
place = SweepPlace(sweep_id="s-1", storage_path=store, resources={})
log_store_start.Keeping(WorkerSetup(host=host, port=int(port), token="secret", trainable="", pickled=None,
                            isolation="worker", place=place, log_bytes=1000))
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


@pytest.fixture
def start_worker(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(spool.tempfile, "tempdir", None)
    host, port = listener.getsockname()

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CODE, host, str(port), str(tmp_path / "store")]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(worker)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "up\n"
        return worker

    yield start
    for worker in started:
        worker.kill()
        worker.communicate(timeout=60)


def greet(listener: socket.socket) -> socket.socket:
    """The next keeper's link."""
    sock, _ = listener.accept()
    (hello,) = next(read_frames(sock, HELLO))
    assert isinstance(hello, Hello)
    assert hello.token == "secret"
    assert hello.worker.startswith("logs-")
    return sock


def keepers() -> list[int]:
    """The processes that are keepers of the spool, or about to be."""
    folder = os.fsencode(spool_folder("s-1", "secret"))
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = path.read_bytes().split(b"\0")
            if folder in words and not words[0].endswith(b"/sh"):
                found.append(int(path.parent.name))
    return found


def one_keeper() -> int:
    wait_for(keepers)
    (found,) = keepers()
    return found


def stat_of(pid: int) -> list[str]:
    """State, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def has_ended(pid: int) -> bool:
    """Also where nobody waits for orphans."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat_of(pid)[0] == "Z"
    return True


def wait_for(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_a_keeper_is_no_child_of_its_worker_and_stores_what_that_leaves(
    start_worker: Callable[[], subprocess.Popen[str]], listener: socket.socket, tmp_path: Path
) -> None:
    workers = [start_worker(), start_worker()]
    sock, keeper = greet(listener), one_keeper()
    assert int(stat_of(keeper)[1]) not in [worker.pid for worker in workers]
    folder = spool_folder("s-1", "secret")
    make_spool(folder)
    (folder / "9-a.owner").write_bytes(make_mark(3, 1))
    (folder / "9-a.out").write_bytes(b"last\n")
    for worker in workers:
        os.killpg(worker.pid, signal.SIGKILL)
    sock.close()
    log = LocalStore(tmp_path / "store")
    wait_for(lambda: log.get("s-1/logs/00003-1.log"))
    wait_for(lambda: not folder.exists())
    wait_for(lambda: has_ended(keeper))


def test_a_keeper_that_dies_is_replaced(
    start_worker: Callable[[], subprocess.Popen[str]], listener: socket.socket
) -> None:
    start_worker()
    with greet(listener):
        first = one_keeper()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: has_ended(first))
    with greet(listener):
        second = one_keeper()
        assert second != first
    wait_for(lambda: has_ended(second))


def test_a_keeper_loads_nothing_before_trials_have_begun() -> None:
    look = """
import select, sys
def see(read, write, odd, timeout_s):
    print(timeout_s, [name for name in sys.modules if name.startswith(("raysweep", "json", "socket"))])
    raise SystemExit
select.select = see
"""
    command = [sys.executable, "-c", look + log_store_start.CODE]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed == "0.5 []\n"


def test_where_the_controller_is_gone_a_keeper_stores_what_there_is(
    start_worker: Callable[[], subprocess.Popen[str]], listener: socket.socket, tmp_path: Path
) -> None:
    folder = spool_folder("s-1", "secret")
    make_spool(folder)
    (folder / "00001-1.9-a.done").write_bytes(b"one\n")
    listener.close()
    start_worker()
    wait_for(lambda: not folder.exists())
    assert LocalStore(tmp_path / "store").get("s-1/logs/00001-1.log") == b"one\n"
