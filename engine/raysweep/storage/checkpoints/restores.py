"""Reading what a checkpoint consists of: object by object, several at a time, each checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from raysweep.errors import CheckpointDamagedError, StorageError
from raysweep.storage.checkpoints.manifest import Manifest, Part
from raysweep.storage.checkpoints.node_cache import NodeCache
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.store import Store

CHOOSE_FIX: Final = "choose another checkpoint"
_THREADS: Final = 4
# Each waits for an answer most of the time.
_REMOTE_THREADS: Final = 8
OnRead = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """One checkpoint on its way out of the store. `prefix`: the trial's folder; `uri`: what it is called."""

    store: Store
    prefix: str
    uri: str
    manifest: Manifest
    give_up_after_s: float
    cache: NodeCache | None = None

    def into(self, target: Path, on_read: OnRead | None = None) -> None:
        """Write all files below a folder, which is there and empty.

        Raises: CheckpointDamagedError, StorageError.
        """
        for folder in self.manifest.empty_folders:
            (target / folder).mkdir(parents=True, exist_ok=True)
        for entry in self.manifest.files:
            path = target / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o777 if entry.executable else 0o666
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                os.truncate(descriptor, entry.size_bytes)
            finally:
                os.close(descriptor)
        places = self._places(target)
        total_bytes = sum(stored.size_bytes for stored in self.manifest.objects)

        def fetch(index: int) -> None:
            self._fetch(index, places[index])
            if on_read is not None:
                on_read(self.manifest.objects[index].size_bytes, total_bytes)

        threads = _REMOTE_THREADS if self.store.local_path(self.prefix) is None else _THREADS
        with ThreadPoolExecutor(threads, thread_name_prefix="raysweep-restore") as pool:
            for _ in pool.map(fetch, range(len(places))):
                pass

    def check(self, index: int) -> None:
        """Read object `index` and compare it with the manifest.

        Raises: CheckpointDamagedError, StorageError.
        """

        def read() -> None:
            for _ in self._checked(index):
                pass

        retrying(self.give_up_after_s)(read)

    def whole(self, index: int) -> bytes:
        """Object `index`, compared with the manifest. Raises: CheckpointDamagedError, StorageError."""
        return retrying(self.give_up_after_s)(lambda: b"".join(self._checked(index)))

    def _places(self, target: Path) -> list[list[tuple[Part, Path, int]]]:
        """For each object: which part of it goes into which file, and where."""
        places: list[list[tuple[Part, Path, int]]] = [[] for _ in self.manifest.objects]
        for entry in self.manifest.files:
            offset = 0
            for part in entry.parts:
                places[part.object].append((part, target / entry.path, offset))
                offset += part.size_bytes
        return places

    def _fetch(self, index: int, places: list[tuple[Part, Path, int]]) -> None:
        def fetch() -> None:
            read = 0
            for piece in self._at_hand(index):
                for part, path, offset in places:
                    first, last = (
                        max(part.offset, read),
                        min(part.offset + part.size_bytes, read + len(piece)),
                    )
                    if first < last:
                        wanted = memoryview(piece)[first - read : last - read]
                        _write(path, wanted, offset + first - part.offset)
                read += len(piece)

        retrying(self.give_up_after_s)(fetch)

    def _at_hand(self, index: int) -> Iterator[bytes]:
        """As `_checked`, from this node's disk where it is there; what comes from the store is kept there.

        Raises: _SpoiltError: what was there is not what it should be; it is gone, to be fetched.
        """
        stored, cache = self.manifest.objects[index], self.cache
        if cache is None:
            yield from self._checked(index)
            return
        near = cache.read(stored)
        if near is None:
            yield from cache.keeping(stored, self._checked(index))
            return
        try:
            yield from self._compared(index, near)
        except CheckpointDamagedError:
            cache.discard(stored)
            raise _SpoiltError(self.uri, "what this node kept of it has changed") from None

    def _checked(self, index: int) -> Iterator[bytes]:
        """The object's content; an error after the last piece if it is not what the manifest says.

        What was written by then is in a folder that is not handed out.
        """
        stored = self.manifest.objects[index]
        pieces = self.store.get_chunks(f"{self.prefix}/{stored.name}")
        if pieces is None:
            raise self._damaged(index, "the file is missing")
        return self._compared(index, pieces)

    def _compared(self, index: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        stored, hashed, size_bytes = self.manifest.objects[index], self.manifest.hasher(), 0
        for piece in pieces:
            hashed.update(piece)
            size_bytes += len(piece)
            if size_bytes <= stored.size_bytes:
                yield piece
        if size_bytes != stored.size_bytes:
            raise self._damaged(index, f"{size_bytes} bytes instead of {stored.size_bytes}")
        if hashed.hexdigest() != stored.hash:
            raise self._damaged(index, "the content changed (its hash is wrong)")

    def _damaged(self, index: int, problem: str) -> CheckpointDamagedError:
        names = [entry.path for entry in self.manifest.files_of(index)]
        return CheckpointDamagedError(f"{self.uri}: {show_names(names)}", problem, CHOOSE_FIX)


class _SpoiltError(StorageError):
    """An object that a node kept differs from the one that was stored."""

    retryable: ClassVar[bool] = True


def show_names(names: list[str], limit: int = 8) -> str:
    """The files that share an object, in a message."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _write(path: Path, data: memoryview, offset: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written
    finally:
        os.close(descriptor)
