"""The process that stores what trials print: what it stores when, what it survives, and when it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import StorageUnavailableError
from raysweep.messages import Exit
from raysweep.storage.objects.local import LocalStore
from raysweep.worker.output import log_store as module
from raysweep.worker.output.log_store import Keeper, open_light
from raysweep.worker.output.log_store_start import CODE
from raysweep.worker.output.spool import HEADER, LOCK, NO_MARK, PLACE, is_locked, make_mark, make_spool
from raysweep.worker.wire import pack

LIMIT = 64 * 1024


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spools" / "s-1" / "now"
    make_spool(folder)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def keeper(spool: Path, store: LocalStore) -> Keeper:
    return Keeper(spool, store, "s-1", LIMIT)


class Talker:
    """A process whose attempt 1 of trial 6 has said `before`, and says `after` when it is told to end."""

    def __init__(self, spool: Path) -> None:
        ready, theirs = os.pipe()
        command = [sys.executable, "-m", "tests.unit.worker.talking", str(spool), "waits", str(theirs)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs])
        os.close(theirs)
        assert os.read(ready, 1) == b"!"
        os.close(ready)
        (self.path,) = spool.glob("*.out")

    def end(self) -> None:
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def talker(spool: Path) -> Iterator[Talker]:
    talker = Talker(spool)
    yield talker
    talker.kill()


def stored(store: LocalStore) -> dict[str, bytes]:
    found = {info.key: store.get(info.key) for info in store.list("s-1")}
    return {key.removeprefix("s-1/logs/"): data for key, data in found.items() if data is not None}


def test_what_is_over_is_stored_and_removed(keeper: Keeper, spool: Path, store: LocalStore) -> None:
    (spool / "00001-1.9-a.done").write_bytes(b"one\n")
    (spool / "00001-2.9-a.done").write_bytes(b"two\n")
    assert keeper.look(0.0) == 0
    assert stored(store) == {"00001-1.log": b"one\n", "00001-2.log": b"two\n"}
    assert list(spool.iterdir()) == []


def test_an_object_store_gets_all_of_them(spool: Path, store_url: Callable[[str], str]) -> None:
    store = open_light(store_url("s3"))
    keeper = Keeper(spool, store, "s-1", LIMIT)
    for number in range(20):
        (spool / f"000{number:02d}-1.9-a.done").write_bytes(b"%d\n" % number)
    assert keeper.look(0.0) == 0
    assert store.get("s-1/logs/00017-1.log") == b"17\n"
    assert len(list(store.list("s-1/logs"))) == 20


def test_a_storage_on_another_disk_gets_a_copy(
    keeper: Keeper, spool: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(18, "Invalid cross-device link")

    # No test can count on a second file system.
    monkeypatch.setattr(Path, "replace", refuse)
    (spool / "00001-1.9-a.done").write_bytes(b"one\n")
    assert keeper.look(0.0) == 0
    assert stored(store) == {"00001-1.log": b"one\n"}


def test_what_runs_is_stored_when_it_is_due_and_again_when_it_is_over(
    keeper: Keeper, store: LocalStore, talker: Talker
) -> None:
    assert keeper.look(0.0) == 1
    assert stored(store) == {}  # a trial that ends soon is stored once
    keeper.look(2.5)
    assert stored(store) == {"00006-1.part.log": b"before\n"}
    talker.end()
    assert keeper.look(2.6) == 0
    assert stored(store) == {"00006-1.log": b"before\nafter\n"}


def test_a_part_is_not_stored_again_while_nothing_comes(
    keeper: Keeper, store: LocalStore, talker: Talker
) -> None:
    keeper.look(0.0)
    keeper.look(2.5)
    store.delete("s-1/logs/00006-1.part.log")
    keeper.look(100.0)
    assert stored(store) == {}
    with talker.path.open("ab") as file:
        file.write(b"more\n")
    keeper.look(200.0)
    assert stored(store) == {"00006-1.part.log": b"before\nmore\n"}


def test_of_a_dead_process_all_is_stored_and_its_files_go(
    keeper: Keeper, spool: Path, store: LocalStore, talker: Talker
) -> None:
    keeper.look(0.0)
    talker.kill()
    assert keeper.look(1.0) == 0
    assert stored(store) == {"00006-1.log": b"before\n[raysweep: the process ended here]\n"}
    keeper.look(2.0)
    assert list(spool.iterdir()) == []


def test_what_was_stored_of_one_whose_file_has_another_owner_by_now_goes(
    keeper: Keeper, spool: Path, store: LocalStore, talker: Talker
) -> None:
    """As a fork server hands over what a child left that was killed."""
    keeper.look(0.0)
    keeper.look(2.5)
    assert stored(store) == {"00006-1.part.log": b"before\n"}
    (spool / "9-b.owner").write_bytes(make_mark(6, 1))
    talker.path.rename(spool / "9-b.out")
    talker.path.with_suffix(".owner").write_bytes(NO_MARK)
    assert keeper.look(3.0) == 0
    assert stored(store) == {"00006-1.log": b"before\n[raysweep: the process ended here]\n"}


def test_a_silent_death_is_told_and_an_idle_one_is_not(
    keeper: Keeper, spool: Path, store: LocalStore
) -> None:
    for owner, mark in (("1-a", make_mark(3, 1)), ("2-b", b" " * 64)):
        (spool / f"{owner}.owner").write_bytes(mark)
        (spool / f"{owner}.out").touch()
    assert keeper.look(0.0) == 0
    assert stored(store) == {"00003-1.log": b"[raysweep: the process ended here]\n"}
    keeper.look(1.0)
    assert list(spool.iterdir()) == []


def test_while_the_storage_is_away_it_stays_known_whose_a_dead_ones_file_is(
    spool: Path, tmp_path: Path
) -> None:
    store = Broken(tmp_path / "store")
    keeper = Keeper(spool, store, "s-1", LIMIT)
    (spool / "1-a.owner").write_bytes(make_mark(3, 1))
    (spool / "1-a.out").write_bytes(b"last\n")
    for at in (0.0, 1.0, 2.0):
        assert keeper.look(time.monotonic() + at) == 1
    store.is_away = False
    assert Keeper(spool, store, "s-1", LIMIT).look(0.0) == 0
    assert stored(store) == {"00003-1.log": b"last\n[raysweep: the process ended here]\n"}


def test_a_long_file_gives_its_middle_back_while_it_is_written_to(
    keeper: Keeper, store: LocalStore, talker: Talker
) -> None:
    line = b"x" * 99 + b"\n"
    with talker.path.open("ab") as file:
        file.write(line * 50_000)
        file.flush()
        keeper.look(0.0)
        status = talker.path.stat()
        assert status.st_size == len(b"before\n") + 5_000_000
        assert status.st_blocks * 512 < 4 * LIMIT
        file.write(b"the end\n")
    talker.end()
    keeper.look(1.0)
    data = stored(store)["00006-1.log"]
    assert data.startswith(b"before\n" + line)
    assert data.endswith(line + b"the end\nafter\n")
    assert b"\0" not in data
    assert len(data) <= LIMIT + 100


class Broken(LocalStore):
    """Nothing can be stored while `is_away`."""

    is_away = True

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        if self.is_away:
            raise StorageUnavailableError(key, "is away")
        super().put(key, data, durable=durable)

    def local_path(self, key: str) -> Path | None:
        return None


def test_an_outage_is_waited_out(
    spool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Broken(tmp_path / "store")
    keeper = Keeper(spool, store, "s-1", LIMIT)
    (spool / "00001-1.9-a.done").write_bytes(b"one\n")
    assert keeper.look(time.monotonic()) == 1
    assert "is away" in capsys.readouterr().err
    store.is_away = False
    assert keeper.look(time.monotonic()) == 1  # not at once
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    later = time.monotonic() + 10
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert keeper.look(later) == 0
    assert stored(store) == {"00001-1.log": b"one\n"}


def test_what_waits_for_the_storage_is_bounded_and_the_oldest_goes(
    spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG_BYTES", 40_000)
    keeper = Keeper(spool, Broken(tmp_path / "store"), "s-1", LIMIT)
    for number in range(10):
        path = spool / f"0000{number}-1.9-a.done"
        path.write_bytes(b"x" * 8192)
        os.utime(path, (number, number))
    keeper.look(time.monotonic())
    assert sorted(path.name[:5] for path in spool.iterdir()) == ["00006", "00007", "00008", "00009"]


class Served:
    """A keeper as a process of its own, and the controller's end of its link."""

    def __init__(self, spool: Path, store: LocalStore) -> None:
        self.sock, theirs = socket.socketpair()
        header = {
            "folder": str(spool),
            "is_linked": True,
            "sweep_id": "s-1",
            "storage_path": store.url,
            "limit_bytes": LIMIT,
        }
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", CODE],
                stdin=theirs,
                env=os.environ | {HEADER: json.dumps(header)},
            )

    def close(self) -> None:
        self.sock.close()
        self.process.kill()
        self.process.wait(timeout=60)


@pytest.fixture
def serve(spool: Path, store: LocalStore) -> Iterator[Callable[[], Served]]:
    started: list[Served] = []

    def start() -> Served:
        started.append(Served(spool, store))
        return started[-1]

    yield start
    for each in started:
        each.close()


def wait_for(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["exit", "gone"])
def test_it_ends_with_its_controller_once_all_is_stored(
    how: str, serve: Callable[[], Served], spool: Path, store: LocalStore
) -> None:
    served = serve()
    (spool / "00001-1.9-a.done").write_bytes(b"one\n")
    if how == "exit":
        served.sock.sendall(pack([Exit()]))
        assert served.sock.recv(1) == b""  # it says so by hanging up
    served.sock.close()
    assert served.process.wait(timeout=60) == 0
    assert stored(store) == {"00001-1.log": b"one\n"}
    assert not spool.exists()


def test_there_is_one_a_spool(serve: Callable[[], Served], spool: Path) -> None:
    first = serve()
    wait_for(lambda: is_locked(spool / LOCK))
    second = serve()
    assert second.process.wait(timeout=60) == 0
    assert first.process.poll() is None


def test_what_nobody_has_resumed_for_a_week_is_removed(serve: Callable[[], Served], spool: Path) -> None:
    for name in ("old", "recent"):
        left = spool.parent.parent / "s-2" / name
        make_spool(left)
        (left / "9-a.out").write_bytes(b"left\n")
    os.utime(spool.parent.parent / "s-2" / "old", (0, time.time() - 8 * 86400))
    served = serve()
    with served.sock:
        wait_for(lambda: not (spool.parent.parent / "s-2" / "old").exists())
    assert served.process.wait(timeout=60) == 0
    assert (spool.parent.parent / "s-2" / "recent" / "9-a.out").exists()


def test_what_an_earlier_one_could_not_store_is_taken_over(
    serve: Callable[[], Served], spool: Path, store: LocalStore
) -> None:
    for name, place in (("before", store.url), ("elsewhere", "/another/storage")):
        left = spool.parent / name
        make_spool(left)
        (left / PLACE).write_text(json.dumps({"storage_path": place}))
        (left / "9-a.owner").write_bytes(make_mark(2, 1))
        (left / "9-a.out").write_bytes(b"left\n")
    served = serve()
    with served.sock:
        wait_for(lambda: not (spool.parent / "before").exists())
    assert served.process.wait(timeout=60) == 0
    assert stored(store) == {"00002-1.log": b"left\n[raysweep: the process ended here]\n"}
    assert (spool.parent / "elsewhere" / "9-a.out").exists()
