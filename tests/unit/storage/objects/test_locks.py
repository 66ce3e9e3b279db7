"""Objects are replaced by one process at a time, also where the file system has no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.errors import StorageUnavailableError
from raysweep.storage.objects import locks
from raysweep.storage.objects.local import LOCK_MARK, LocalStore
from tests.unit.pipeline.gates import champions, night

Refuse = Callable[..., None]
NONE = [errno.ENOSYS, errno.EOPNOTSUPP]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let `flock` fail with an error, so many times: no file system of a test has no locks."""
    real = fcntl.flock
    left = [0]

    def refuse(number: int, times: int = 1_000_000) -> None:
        left[0] = times

        def flock(file: int, operation: int) -> None:
            if left[0] > 0:
                left[0] -= 1
                raise OSError(number, os.strerror(number))
            real(file, operation)

        monkeypatch.setattr(fcntl, "flock", flock)

    return refuse


def count(root: Path, times: int) -> None:
    """Add to a number that others add to."""
    store = LocalStore(root)
    for _ in range(times):
        while True:
            found = store.get_versioned("a/number")
            value = int(found[0]) if found is not None else 0
            if store.put_if_version("a/number", str(value + 1).encode(), found[1] if found else None):
                break


@pytest.mark.parametrize("number", NONE)
def test_without_locks_no_change_is_lost(
    number: int, refuse: Refuse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(number)
    threads = [threading.Thread(target=count, args=(tmp_path, 20)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (tmp_path / "a/number").read_bytes() == b"80"
    assert [each.name for each in (tmp_path / "a").iterdir() if "held" in each.name] == []
    assert f"{tmp_path}/a: the file system has no locks" in caplog.text


@pytest.mark.parametrize("number", NONE)
def test_without_locks_a_gate_decides(number: int, refuse: Refuse, tmp_path: Path) -> None:
    refuse(number)
    assert night(tmp_path, "n1", 0.5).promoted
    assert night(tmp_path, "n2", 0.7).promoted
    champion = champions(tmp_path).champion
    assert champion is not None
    assert champion.sweep_id == "n2"


def test_locks_that_are_away_for_a_moment_are_waited_for(refuse: Refuse, tmp_path: Path) -> None:
    refuse(errno.ENOLCK, times=3)
    assert LocalStore(tmp_path).put_if_version("a/key", b"1", None)


def test_locks_that_stay_away_are_said_and_asked_for_again_later(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "AWAY_S", 0.1)
    refuse(errno.ENOLCK)
    store = LocalStore(tmp_path)
    with pytest.raises(StorageUnavailableError, match=r"No locks available.*lock daemon") as raised:
        store.put_if_version("a/key", b"1", None)
    assert raised.value.retryable
    assert night(tmp_path, "n1", 0.5).promoted, "a gate asks for none"
    refuse(errno.ENOLCK, times=0)
    assert store.put_if_version("a/key", b"1", None)


def test_the_lock_file_of_a_killed_process_is_taken_away_and_a_living_ones_waited_for(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(errno.ENOSYS)
    monkeypatch.setattr(locks, "STALE_S", 1.0)
    store, left = LocalStore(tmp_path), tmp_path / "a" / f"{LOCK_MARK}key.held"
    left.parent.mkdir()
    left.write_bytes(b"")
    begun = time.monotonic()
    assert store.put_if_version("a/key", b"1", None)
    assert 0.5 < time.monotonic() - begun < 30
    assert not left.exists()


def test_who_has_lost_the_lock_file_replaces_nothing(refuse: Refuse, tmp_path: Path) -> None:
    """As a process that was suspended for longer than its lock is good for."""
    refuse(errno.ENOSYS)
    store, lock = LocalStore(tmp_path), tmp_path / "a" / f"{LOCK_MARK}key.held"
    store.put("a/key", b"1")
    found = store.get_versioned("a/key")
    assert found is not None
    read = store.get_versioned

    def suspended(key: str) -> tuple[bytes, str] | None:
        lock.unlink()
        lock.write_bytes(b"of another process")
        return read(key)

    store.get_versioned = suspended  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailableError, match="the lock file was lost"):
        store.put_if_version("a/key", b"2", found[1])
    assert store.get("a/key") == b"1"
    assert [
        each.name for each in lock.parent.iterdir() if "-tmp-" in each.name and "lock" not in each.name
    ] == []
    assert lock.read_bytes() == b"of another process"
