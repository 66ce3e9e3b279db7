"""Objects of checkpoints that this node stored or fetched, on its own disk: restores here fetch less.

Retries, clones, siblings and ranks share it. Only workers have one, and only before a store that is not a
local folder. A part is named by its hash, and reads are checked as those of the store: no process
has to trust what lies here. It is bounded (the part that was used longest ago goes first), leaves a tenth of
the disk free, and whatever goes wrong with it only costs time. It lies below `RAYSWEEP_STAGING`, else below
the folder for temporary files.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from raysweep.documents.own_folder import make_own_folder
from raysweep.documents.sizes import to_bytes
from raysweep.documents.validation import Problem, spec_error
from raysweep.storage.checkpoints.manifest import StoredObject

PLACE: Final = "RAYSWEEP_STAGING"
LIMIT: Final = "RAYSWEEP_NODE_CACHE"
LIMIT_BYTES: Final = 2**31
_FREE_PART: Final = 0.1
_PIECE_BYTES: Final = 1024 * 1024
_LOOK_EVERY_BYTES: Final = 64 * 1024 * 1024
_LOOK_EVERY: Final = 64
_TEMPORARY: Final = ".new-"


class NodeCache:
    """One folder of parts. Any number of processes use it at once."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._added_bytes = self._added = 0

    def read(self, stored: StoredObject) -> Iterator[bytes] | None:
        """The file under an object's hash, unchecked; None where there is none."""
        path = self._folder / stored.hash
        try:
            file = open(path, "rb")  # noqa: SIM115  closed by the iterator
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        return _pieces(file)

    def add(self, stored: StoredObject, data: memoryview) -> None:
        """Keep an object's content, if there is room."""
        for _ in self.keeping(stored, [bytes(data)]):
            pass

    def keeping(self, stored: StoredObject, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """These pieces of an object's content; at their end, if that is without an error, they are kept."""
        writing = self._begin(stored)
        try:
            for piece in pieces:
                writing = _write(writing, piece)
                yield piece
            if writing is not None:
                writing.close()
                with suppress(OSError):
                    os.replace(writing.name, self._folder / stored.hash)
                    self._note(stored.size_bytes)
        finally:
            if writing is not None:
                _drop(writing)

    def _begin(self, stored: StoredObject) -> IO[bytes] | None:
        is_small = stored.size_bytes <= self._limit_bytes // 4
        if not is_small or (self._folder / stored.hash).exists() or not self._has_room(stored.size_bytes):
            return None
        try:
            return open(self._folder / f"{_TEMPORARY}{secrets.token_hex(6)}", "xb")
        except OSError:
            return None

    def discard(self, stored: StoredObject) -> None:
        """It is not what its name says."""
        with suppress(OSError):
            (self._folder / stored.hash).unlink()

    def _has_room(self, size_bytes: int) -> bool:
        try:
            usage = shutil.disk_usage(self._folder)
        except OSError:
            return False
        return usage.free - size_bytes > usage.total * _FREE_PART

    def _note(self, size_bytes: int) -> None:
        """Look now and then how much there is: others add to it, too."""
        with self._lock:
            self._added += 1
            self._added_bytes += size_bytes
            step = min(_LOOK_EVERY_BYTES, self._limit_bytes // 8)
            is_due = self._added_bytes >= step or self._added >= _LOOK_EVERY
            if is_due:
                self._added = self._added_bytes = 0
        if is_due:
            self._shrink()

    def _shrink(self) -> None:
        found = []
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat()
                    found.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit_bytes * 0.9:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= size


def open_cache() -> NodeCache | None:
    """This node's, for this user; None where there is to be none, or no place for it.

    Raises: SpecError: The variable for its size has no amount of bytes.
    """
    limit_bytes = _limit_bytes()
    if not limit_bytes:
        return None
    folder = Path(os.environ.get(PLACE) or tempfile.gettempdir()) / f"raysweep-cache-{os.getuid()}"
    try:
        make_own_folder(folder)
    except OSError:
        return None
    return NodeCache(folder, limit_bytes)


def _limit_bytes() -> int:
    """The most that it takes up: by default 2 GiB; 0: there is none."""
    given = os.environ.get(LIMIT, "")
    if not given or given.isdigit():
        return int(given or LIMIT_BYTES)
    try:
        return int(to_bytes(given))
    except Problem as problem:
        raise spec_error(problem.issues, LIMIT) from None


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _write(file: IO[bytes] | None, piece: bytes) -> IO[bytes] | None:
    """The file, as long as it takes what it is given."""
    if file is not None:
        try:
            file.write(piece)
        except OSError:
            _drop(file)
            return None
    return file


def _drop(file: IO[bytes]) -> None:
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        os.unlink(file.name)
