"""Stores what trials print: one process a node and controller, that no death of a worker takes along.

`log_store_start` starts it. Its standard input is its link to the controller. It looks at the spool twice a
second:
what is over is stored and removed; of what runs, the middle of a long file is given back to the disk, and
what there is is stored now and then, for those who follow it. It ends when the controller says so or is gone,
once all is stored. What could not be stored stays, and the next keeper of the sweep takes it over.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import shutil
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import StorageError
from raysweep.storage.logs import log_name, read_bounded, shares
from raysweep.storage.objects.store import Store
from raysweep.worker.output.spool import (
    DONE,
    HEADER,
    LOCK,
    OUT,
    OWNER,
    PLACE,
    Entry,
    entries,
    is_alive,
    read_mark,
    try_lock,
)

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

LOOK_S: Final = 0.5
# What runs is stored first once it is so old, then again when it has changed, at no more than this rate.
PART_S: Final = 2.0
RATE: Final = 64 * 2**10
LOCAL_RATE: Final = 2**20
RETRY_S: Final = 5.0
LOCK_S: Final = 2.0
# The controller may be gone for the storage's sake; nothing of a sweep stays for long.
LAST_S: Final = 60.0
# A worker that is being ended takes its file along; from then on it is over, whatever it does.
GRACE_S: Final = 2.0
# While the storage is away, so much waits on the disk; then the oldest goes.
MAX_BACKLOG_BYTES: Final = 512 * 2**20
# What could not be stored waits so long for its sweep to be resumed on this node.
OLD_S: Final = 7 * 86400.0
UPLOADS: Final = 8
DIED: Final = b"\n[raysweep: the process ended here]\n"
_PAGE: Final = 4096
_PUNCH_HOLE: Final = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


class _Running:
    """A file that is being written to: what was stored of it, and given back."""

    __slots__ = ("due_at", "punched", "stored")

    def __init__(self, due_at: float) -> None:
        self.due_at = due_at
        self.stored = 0
        self.punched = 0


class Keeper:
    """One spool and the storage that it goes to."""

    def __init__(self, folder: Path, store: Store, sweep_id: str, limit_bytes: int) -> None:
        self._folder = folder
        self._store = store
        self._sweep_id = sweep_id
        self._limit_bytes = limit_bytes
        self._running: dict[str, _Running] = {}
        self._is_local = store.local_path("x") is not None
        self._pool = None if self._is_local else _make_pool()
        self._retry_at = 0.0
        # What is there already may be another keeper's, which may have stored a part of it.
        self._parted: set[str] = {entry.name for entry in entries(folder)}

    def look(self, at: float, *, is_last: bool = False) -> int:
        """Do what there is to do at a time in seconds; how many logs remain.

        `is_last`: what is still written to is taken as it is.
        """
        found = list(entries(self._folder))
        alive = {owner: is_alive(self._folder, owner) for owner in {entry.owner for entry in found}}
        over: list[Entry] = []
        for entry in found:
            is_over = is_last or not alive[entry.owner]
            if entry.kind == DONE or (entry.kind == OUT and entry.trial and is_over):
                over.append(entry)
            elif entry.kind == OUT and entry.trial:
                with suppress(FileNotFoundError):  # it has just become another
                    self._watch(entry, at)
            elif not alive[entry.owner] and not self._is_needed(entry, found):
                entry.path.unlink(missing_ok=True)
        if over and at >= self._retry_at:
            self._each(self._keep, over)
        if self._retry_at > at:
            self._forget_oldest(over)
        return sum(bool(entry.trial) and entry.path.exists() for entry in found)

    def finish(self, within_s: float) -> bool:
        """Store what there is, for so long; False if something remains."""
        began = time.monotonic()
        while (at := time.monotonic()) - began < within_s:
            if not self.look(at, is_last=at - began > GRACE_S):
                return True
            time.sleep(0.02)
        return False

    def _is_needed(self, entry: Entry, found: list[Entry]) -> bool:
        """True if this is the owner of a file that has yet to be stored, and says whose that is."""
        return entry.kind == OWNER and any(
            other.kind == OUT and other.owner == entry.owner and other.path.exists() for other in found
        )

    def _each(self, call: Callable[[Entry], None], over: Iterable[Entry]) -> None:
        if self._pool is not None:
            list(self._pool.map(call, over))
            return
        for entry in over:
            call(entry)

    def _keep(self, entry: Entry) -> None:
        """Store an attempt's log and remove it here."""
        if self._retry_at > time.monotonic():
            return
        try:
            if not self._move(entry):
                text = self._read(entry.path)
                if entry.kind == OUT:  # it cannot have said how it ended
                    text += DIED.removeprefix(b"\n") if text.endswith(b"\n") or not text else DIED
                self._store.put(self._key(entry, is_final=True), text)
                entry.path.unlink()
            if entry.name in self._parted:
                self._store.delete(self._key(entry, is_final=False))
        except FileNotFoundError:
            return
        except (StorageError, OSError) as error:
            self._fail(error)
            return
        self._running.pop(entry.name, None)
        self._parted.discard(entry.name)

    def _move(self, entry: Entry) -> bool:
        """Make the file itself the object, where the storage is on the same disk: nothing is copied."""
        target = self._store.local_path(self._key(entry, is_final=True)) if self._is_local else None
        if target is None or entry.kind == OUT or entry.path.stat().st_size > self._limit_bytes:
            return False
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            entry.path.replace(target)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise
        return True

    def _watch(self, entry: Entry, at: float) -> None:
        """Bound a file that is written to, and store what there is, if that is due."""
        size = entry.path.stat().st_size
        if not size:
            return
        running = self._running.setdefault(entry.name, _Running(at + PART_S))
        if size > self._limit_bytes:
            self._punch(entry.path, size, running)
        if size == running.stored or at < max(running.due_at, self._retry_at):
            return
        text = self._read(entry.path)
        if read_mark(entry.path.with_suffix(f".{OWNER}")) != (entry.trial, entry.attempt):
            return  # the file may be the next attempt's by now
        try:
            self._store.put(self._key(entry, is_final=False), text)
        except StorageError as error:
            self._fail(error)
            return
        self._parted.add(entry.name)
        running.stored = size
        running.due_at = at + PART_S + len(text) / (LOCAL_RATE if self._is_local else RATE)

    def _read(self, path: Path) -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return read_bounded(descriptor, self._limit_bytes).encode()
        finally:
            os.close(descriptor)

    def _punch(self, path: Path, size: int, running: _Running) -> None:
        """Give the middle back to the disk. Where its file system cannot, the file is as long as it is."""
        head_bytes, tail_bytes = shares(self._limit_bytes)
        first = max(running.punched, -(-head_bytes // _PAGE) * _PAGE)
        last = (size - tail_bytes) // _PAGE * _PAGE
        if last - first < self._limit_bytes // 4:
            return
        descriptor = os.open(path, os.O_RDWR)
        try:
            fallocate = ctypes.CDLL(None).fallocate
            fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
            fallocate(descriptor, _PUNCH_HOLE, first, last - first)
        except AttributeError:
            pass  # not Linux
        finally:
            os.close(descriptor)
        running.punched = last

    def _fail(self, error: Exception) -> None:
        say(f"not stored: {error}")
        self._retry_at = time.monotonic() + RETRY_S

    def _forget_oldest(self, over: list[Entry]) -> None:
        sizes: list[tuple[float, int, Path]] = []
        for entry in over:
            with suppress(FileNotFoundError):
                status = entry.path.stat()
                sizes.append((status.st_mtime, status.st_blocks * 512, entry.path))
        total = sum(size for _, size, _ in sizes)
        for _, size, path in sorted(sizes):
            if total <= MAX_BACKLOG_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _key(self, entry: Entry, *, is_final: bool) -> str:
        return f"{self._sweep_id}/{log_name(entry.trial, entry.attempt, is_final=is_final)}"


def main() -> None:
    """Store what is in the spool until the controller is gone."""
    setup = json.loads(os.environ[HEADER])
    folder = Path(setup["folder"])
    with suppress(FileNotFoundError):  # the spool is gone: the sweep is over
        lock = _lock(folder / LOCK)
        if lock is not None:
            _serve(folder, setup)


def _lock(path: Path) -> int | None:
    """The lock of a spool; a worker that looks whether it is held, holds it for a moment."""
    deadline = time.monotonic() + LOCK_S
    while (lock := try_lock(path)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return lock


def _serve(folder: Path, setup: dict[str, Any]) -> None:
    sock = socket.socket(fileno=0) if setup["is_linked"] else None
    store = open_light(setup["storage_path"])
    (folder / PLACE).write_text(json.dumps({"storage_path": setup["storage_path"]}))
    keepers = {folder: Keeper(folder, store, setup["sweep_id"], setup["limit_bytes"])}
    for left in _find_left(folder, setup["storage_path"]):
        keepers[left] = Keeper(left, store, setup["sweep_id"], setup["limit_bytes"])
    _clear_old(folder.parent.parent, keepers.keys())
    while sock is not None:  # it has waited once already, before this was loaded
        for path, keeper in list(keepers.items()):
            if not keeper.look(time.monotonic()) and path != folder:
                del keepers[path]
                shutil.rmtree(path, ignore_errors=True)
        if select.select([sock], [], [], LOOK_S)[0]:
            break
    if sock is not None:
        with suppress(OSError):
            sock.recv(4096)  # what is unread would make a reset of the end
    for path, keeper in keepers.items():
        if keeper.finish(LAST_S):
            shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()
    if sock is not None:
        sock.close()


def open_light(storage_path: str) -> Store:
    """The store; a local folder without what the others need, which takes longest of all to import."""
    if "://" not in storage_path:
        from raysweep.storage.objects.local import LocalStore

        return LocalStore(Path(storage_path))
    from raysweep.storage.objects.opening import open_store

    return open_store(storage_path)


def _find_left(folder: Path, storage_path: str) -> list[Path]:
    """Spools of the same sweep whose keeper could not store all, or was killed."""
    found: list[Path] = []
    for path in folder.parent.iterdir():
        with suppress(OSError, ValueError):
            place = json.loads((path / PLACE).read_text())
            is_same = path != folder and place["storage_path"] == storage_path
            if is_same and try_lock(path / LOCK) is not None:  # held as long as this process lives
                found.append(path)
    return found


def _clear_old(root: Path, wanted: Collection[Path]) -> None:
    """Remove the spools of sweeps that have not been resumed for long."""
    for path in set(root.glob("*/*")) - {*wanted}:
        with suppress(OSError):
            is_old = time.time() - path.stat().st_mtime > OLD_S
            if is_old and try_lock(path / LOCK) is not None:
                shutil.rmtree(path)


def _make_pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(UPLOADS)


def say(text: str) -> None:
    """For those who look into the spool."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
    sys.stderr.flush()
