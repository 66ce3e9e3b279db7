"""Storing what a checkpoint directory holds: cut, hashed, put only where the one before has it not.

What may be referred to without being stored again is what one other checkpoint, the parent, refers to: it is
the trial's newest, which is not deleted before the new one is committed. So no process needs to ask the store
what is there, and what is being deleted can never be what is being referred to.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from raysweep.documents.validation import show
from raysweep.errors import SpecError, StorageError
from raysweep.storage.checkpoints.bandwidth import Bandwidth
from raysweep.storage.checkpoints.directory import read_piece, unreadable
from raysweep.storage.checkpoints.manifest import FileEntry, Manifest, Part, StoredObject, hash_of
from raysweep.storage.checkpoints.node_cache import NodeCache
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.store import Store

CHUNK_BYTES: Final = 4 * 1024 * 1024
SMALL_BYTES: Final = 64 * 1024
"""Files below this are packed together, up to `CHUNK_BYTES`."""
PARALLEL_PUTS: Final = 4
"""Objects of a checkpoint that are put at once, unless `PUTS_VARIABLE` says otherwise."""
PUTS_VARIABLE: Final = "RAYSWEEP_PARALLEL_PUTS"
_SYNCED_AT_ONCE: Final = 16
_ONE_THREAD_BYTES: Final = 64 * 1024 * 1024
"""On a local disk, so much is stored by one thread: more would take processor time from the trial, and end no
sooner."""
T = TypeVar("T")
R = TypeVar("R")


class _Piece(NamedTuple):
    """`size_bytes` of the file at `path`, from `offset` on."""

    path: str
    offset: int
    size_bytes: int


# What becomes one object: one piece of a large file, or several small files.
_Cut = tuple[_Piece, ...]


def _parallel_puts() -> int:
    """The number of parts that are stored at once on this machine."""
    given = os.environ.get(PUTS_VARIABLE, "")
    try:
        return max(1, int(given)) if given else PARALLEL_PUTS
    except ValueError:
        problem = f"{show(given)} is not a whole number"
        raise SpecError(PUTS_VARIABLE, problem, f"set it to one such as {PARALLEL_PUTS}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    """The part of the network (or disk) that uploads may use; those that share one share its `bandwidth`."""

    parallel_puts: int = field(default_factory=_parallel_puts)
    bandwidth: Bandwidth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One checkpoint on its way into the store. `prefix`: the trial's folder; `folder`: this checkpoint's.

    `go_on` is called before each object, and raises if the upload is to end.
    """

    store: Store
    prefix: str
    folder: str
    parent: Manifest | None
    give_up_after_s: float
    go_on: Callable[[], None]
    limits: UploadLimits = field(default_factory=UploadLimits)
    cache: NodeCache | None = None

    def run(
        self, directory: Path, paths: Sequence[str], carried: Mapping[str, FileEntry]
    ) -> tuple[tuple[FileEntry, ...], tuple[StoredObject, ...]]:
        """Store these files of a directory; durable on return.

        `carried`: files that are as they were in the parent: they are not read, and need not be there.

        Raises: SpecError for a file that cannot be read, StorageError.
        """
        paths = [path for path in paths if path not in carried]
        sizes = {path: _status(directory / path) for path in paths}
        cuts = list(_cut({path: size_bytes for path, (size_bytes, _) in sizes.items()}))
        stored = self._put_all(directory, cuts)
        table = _Table()
        parts: dict[str, list[Part]] = {path: [] for path in paths}
        for cut, found in zip(cuts, stored, strict=True):
            offset = 0
            for piece in cut:
                parts[piece.path].append(Part(table.index(found), offset, piece.size_bytes))
                offset += piece.size_bytes
        files = [
            FileEntry(
                path=path, size_bytes=sizes[path][0], executable=sizes[path][1], parts=tuple(parts[path])
            )
            for path in paths
        ]
        files += [self._carry(entry, table) for entry in carried.values()]
        return tuple(sorted(files, key=lambda entry: entry.path)), tuple(table.objects)

    def _carry(self, entry: FileEntry, table: _Table) -> FileEntry:
        assert self.parent is not None, "it is carried from somewhere"
        objects = self.parent.objects
        parts = tuple(part._replace(object=table.index(objects[part.object])) for part in entry.parts)
        return FileEntry(
            path=entry.path, size_bytes=entry.size_bytes, executable=entry.executable, parts=parts
        )

    def _put_all(self, directory: Path, cuts: Sequence[_Cut]) -> list[StoredObject]:
        known = {} if self.parent is None else _by_hash(self.parent)
        put: dict[StoredObject, _Cut] = {}
        buffers = _Buffers()

        def store(cut: _Cut) -> StoredObject:
            self.go_on()
            data = _read(directory, cut, buffers.own)
            digest = hash_of(data)
            found = known.get((digest, len(data)))
            if found is not None:
                return found
            new = StoredObject(f"{self.folder}/{digest}", len(data), digest)
            if new not in put:  # two threads with the same content put it twice: one name, the same bytes
                retrying(self.give_up_after_s)(self._put, self._key(new), self._kept(data))
                put[new] = cut
                if self.cache is not None:
                    self.cache.add(new, data)
            return new

        is_small = sum(piece.size_bytes for cut in cuts for piece in cut) <= _ONE_THREAD_BYTES
        at_once = 1 if self._is_local and is_small else self.limits.parallel_puts
        stored = _each(store, cuts, at_once)
        new = list(put)
        batches = [new[first : first + _SYNCED_AT_ONCE] for first in range(0, len(new), _SYNCED_AT_ONCE)]
        _each(lambda batch: self._settle(directory, {each: put[each] for each in batch}), batches, at_once)
        return stored

    @property
    def _is_local(self) -> bool:
        return self.store.local_path(self.folder) is not None

    def _kept(self, data: memoryview) -> bytes | memoryview:
        """The bytes to put; a copy for a request, which may read them after its thread was interrupted."""
        return data if self._is_local else bytes(data)

    def _put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        if self.limits.bandwidth is not None:
            self.limits.bandwidth.take(len(data), self.go_on)
        self.store.put(key, data, durable=durable)

    def _settle(self, directory: Path, batch: Mapping[StoredObject, _Cut]) -> None:
        """Have them on the disk. All are written first: the first sync takes what others would wait for."""
        self.go_on()
        try:
            self.store.sync(*map(self._key, batch))
        except StorageError:
            # After a failed sync the system may forget what it did not write: it is written anew.
            for new, cut in batch.items():
                self.go_on()
                data = _read(directory, cut, memoryview(bytearray(CHUNK_BYTES)))
                retrying(self.give_up_after_s)(self._put, self._key(new), data, durable=True)

    def _key(self, stored: StoredObject) -> str:
        return f"{self.prefix}/{stored.name}"


class _Table:
    """The objects of a manifest, each once."""

    def __init__(self) -> None:
        self.objects: list[StoredObject] = []
        self._places: dict[str, int] = {}

    def index(self, stored: StoredObject) -> int:
        place = self._places.setdefault(stored.name, len(self.objects))
        if place == len(self.objects):
            self.objects.append(stored)
        return place


class _Buffers(threading.local):
    """A buffer for each thread: new memory for each chunk costs more than to hash and to write it.

    It begins at a page of the memory, as writes around the page cache need it. Large pages, where the system
    has them: to be handed 4 MiB in small ones takes 2 to 3 ms, as long as to hash them.
    """

    def __init__(self) -> None:
        memory = mmap.mmap(-1, CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(AttributeError, OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self.own = memoryview(memory)


def _each(call: Callable[[T], R], items: Sequence[T], at_once: int) -> list[R]:
    if at_once < 2 or len(items) < 2:
        return list(map(call, items))
    with ThreadPoolExecutor(at_once, thread_name_prefix="raysweep-upload") as pool:
        return list(pool.map(call, items))


def _by_hash(parent: Manifest) -> dict[tuple[str, int], StoredObject]:
    return {(each.hash, each.size_bytes): each for each in parent.objects}


def _cut(sizes: Mapping[str, int]) -> Iterator[_Cut]:
    """The pieces of each object. Small files are packed in the order of their paths."""
    pack: list[_Piece] = []
    packed = 0
    for path, size_bytes in sizes.items():
        if size_bytes >= SMALL_BYTES:
            for offset in range(0, size_bytes, CHUNK_BYTES):
                yield (_Piece(path, offset, min(CHUNK_BYTES, size_bytes - offset)),)
        elif size_bytes:
            if packed + size_bytes > CHUNK_BYTES:
                yield tuple(pack)
                pack, packed = [], 0
            pack.append(_Piece(path, 0, size_bytes))
            packed += size_bytes
    if pack:
        yield tuple(pack)


def _read(directory: Path, cut: _Cut, buffer: memoryview) -> memoryview:
    """The bytes of a cut, in this buffer of `CHUNK_BYTES`."""
    end = 0
    for piece in cut:
        begin, end = end, end + piece.size_bytes
        read_piece(directory / piece.path, piece.offset, buffer[begin:end])
    return buffer[:end]


def _status(path: Path) -> tuple[int, bool]:
    """(size, whether it is executable)."""
    try:
        return path.stat().st_size, os.access(path, os.X_OK)
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
