"""Output on a node until it is stored: a folder of one controller's workers, shared by files.

    <temporary folder>/raysweep-<uid>/<sweep_id>/<controller>/
        keeper.lock                     locked by the process that stores what is here (`log_store`)
        place.json                      where it is to be stored
        <owner>.owner                   locked by a process that runs attempts, while it lives; holds the mark
                                        of the attempt that runs: `00017-2`
        <owner>.out                     what that attempt writes
        00017-2.<owner>.done            what an attempt wrote; it is over

An attempt that writes nothing costs no file: a mark is one write. The locks are the kernel's: however a
process ends, its lock is free, and what it wrote is here.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from raysweep.documents.own_folder import make_own_folder

OWNER: Final = "owner"
OUT: Final = "out"
DONE: Final = "done"
MARK_BYTES: Final = 64
LOCK: Final = "keeper.lock"
PLACE: Final = "place.json"
HEADER: Final = "RAYSWEEP_KEEPER"
"""The variable that holds what a keeper has to know, as JSON."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the spool, and of which attempt it is; an `out` file may be of none."""

    path: Path
    owner: str
    kind: str
    trial: str = ""
    attempt: int = 0

    @property
    def name(self) -> str:
        """The same for all files of an attempt, whichever process owns them, and of no other."""
        return f"{self.trial}-{self.attempt}"


def spool_root() -> Path:
    """The folder for this user's spools on this node."""
    return Path(tempfile.gettempdir(), f"raysweep-{os.getuid()}")


def spool_folder(sweep_id: str, token: str) -> Path:
    """The spool of the workers of one controller, which is known by its token."""
    return spool_root() / sweep_id / blake2b(token.encode(), digest_size=6).hexdigest()


def make_spool(folder: Path) -> None:
    """Create the folder, for this user alone.

    Raises:
        OSError: It cannot be had, or its root belongs to another user.
    """
    root = spool_root()
    if folder.is_relative_to(root):
        make_own_folder(root)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def entries(folder: Path) -> Iterator[Entry]:
    """The files of a spool; none where it is gone."""
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for item in found:
            entry = parse(Path(item.path))
            if entry is not None:
                yield entry


def parse(path: Path) -> Entry | None:
    """The kind of a file of the spool; None for those of the keeper."""
    parts = path.name.split(".")
    if len(parts) == 2 and parts[1] == OWNER:
        return Entry(path, parts[0], OWNER)
    if len(parts) == 2 and parts[1] == OUT:
        return Entry(path, parts[0], OUT, *read_mark(path.with_suffix(f".{OWNER}")))
    if len(parts) == 3 and parts[2] == DONE:
        who = _parse_mark(parts[0])
        return Entry(path, parts[1], DONE, *who) if who[0] else None
    return None


def make_mark(trial: int, attempt: int) -> bytes:
    """The content of an owner's file while an attempt runs."""
    return f"{trial:05d}-{attempt}".encode().ljust(MARK_BYTES)


NO_MARK: Final = b" " * MARK_BYTES


def read_mark(path: Path) -> tuple[str, int]:
    """The trial and the attempt that an owner runs; ("", 0) if none."""
    try:
        # Not through a descriptor of the owner's own: closing one would give up its lock.
        return _parse_mark(path.read_text())
    except FileNotFoundError:
        return "", 0


def _parse_mark(text: str) -> tuple[str, int]:
    trial, _, attempt = text.strip().rpartition("-")
    return (trial, int(attempt)) if trial.isdigit() and attempt.isdigit() else ("", 0)


def become_owner(folder: Path) -> tuple[str, int]:
    """A name for this process in the spool, and the descriptor that holds its lock.

    The lock is the process's: a child that it forks does not have it.
    """
    owner = f"{os.getpid()}-{secrets.token_hex(4)}"
    # Locked before it has its name: no process ever sees it free.
    path = folder / f"{owner}.new"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path.rename(folder / f"{owner}.{OWNER}")
    return owner, descriptor


def is_alive(folder: Path, owner: str) -> bool:
    """True if the process lives. Never to be asked by the process itself: its lock would be gone."""
    return is_locked(folder / f"{owner}.{OWNER}")


def is_locked(path: Path) -> bool:
    """True if another process has locked a file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def try_lock(path: Path) -> int | None:
    """The descriptor of a file that this process has locked now; None where another one has."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
