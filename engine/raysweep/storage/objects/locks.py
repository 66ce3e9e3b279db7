"""An exclusive lock for the replacement of an object in a folder: by `flock`, else by a file of its own.

A file system may have no locks (Lustre mounted without them, some FUSE mounts). Then the lock is a file that
is created by link, and removed at the end: all machines have to mount the folder the same way. A process that
was killed leaves it; after `STALE_S` the next one takes it away. What is lost: a process that is suspended
for so long between its last look and the rename may undo a change of another one.

Locks that are away for now (the lock daemon of NFS) are waited for: with a file instead, a process that gets
one of them would not see it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

log = logging.getLogger("raysweep")
NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
AWAY_S: Final = 30.0
"""The limit for asking a lock daemon that does not answer."""
STALE_S: Final = 60.0
"""The age from which a lock file counts as that of a killed process."""
_PAUSE_S: Final = 0.05
_told: set[Path] = set()
Identity = tuple[int, int]
"""Inode and time of a lock file: an inode is used again."""


@contextmanager
def locked(descriptor: int, beside: Path) -> Iterator[Callable[[], None]]:
    """Hold the lock; what is yielded raises OSError once it may not be held any more.

    Args:
        descriptor: An open file that is locked.
        beside: The lock where the file system has no locks: a name in the same folder.

    Raises: OSError: Neither can be had.
    """
    refused = _flock(descriptor)
    if refused is None:
        yield lambda: None
        return
    if beside.parent not in _told:
        _told.add(beside.parent)
        text = "%s: the file system has no locks (%s): lock files guard what is replaced here"
        log.warning(text, beside.parent, refused.strerror)
    mine = _create(beside)
    until = time.monotonic() + STALE_S / 2
    try:
        yield lambda: _check_held(beside, mine, until)
    finally:
        if _identity(beside) == mine:
            beside.unlink(missing_ok=True)


def _flock(descriptor: int) -> OSError | None:
    """The error of a file system that has no lock; None once it is held. Raises OSError."""
    until = time.monotonic() + AWAY_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return error
            if error.errno != errno.ENOLCK or time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)
        else:
            return None


def _create(beside: Path) -> Identity:
    """Create the lock file once no other process has it."""
    own = beside.with_name(f"{beside.name}-{os.getpid():x}-{secrets.token_hex(4)}")
    os.close(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        while True:
            os.utime(own)  # by the clock of the file system, as far as it has one
            now = os.stat(own)
            try:
                os.link(own, beside)
            except FileExistsError:
                _take_stale(beside, now.st_mtime_ns)
                time.sleep(_PAUSE_S)
            else:
                return now.st_ino, now.st_mtime_ns
    finally:
        own.unlink(missing_ok=True)


def _take_stale(beside: Path, now_ns: int) -> None:
    """Remove the lock file of a process that was killed; only one of those that wait does."""
    try:
        found = _identity(beside)
        if found is None or now_ns - found[1] < STALE_S * 1e9:
            return
        taken = beside.with_name(f"{beside.name}-{secrets.token_hex(4)}")
        os.rename(beside, taken)
        if _identity(taken) != found:
            os.link(taken, beside)  # another process had removed it first, and this is its own
        taken.unlink(missing_ok=True)
    except (FileNotFoundError, FileExistsError):
        pass


def _check_held(beside: Path, mine: Identity, until: float) -> None:
    if time.monotonic() > until or _identity(beside) != mine:
        raise OSError(errno.ESTALE, "the lock file was lost while an object was replaced")


def _identity(path: Path) -> Identity | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
