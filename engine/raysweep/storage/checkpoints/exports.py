"""A checkpoint as plain files in its store, for readers without raysweep."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from raysweep.errors import StorageError
from raysweep.storage.checkpoints.manifest import FileEntry, escape
from raysweep.storage.checkpoints.restores import Restore
from raysweep.storage.checkpoints.store import GIVE_UP_AFTER_S, CheckpointStore
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.store import Store


def export_checkpoint(checkpoints: CheckpointStore, uri: str, key: str) -> None:
    """Write the files of a checkpoint below the folder `key` of its store; durable on return.

    Each byte is checked. A folder that holds the files already, all or some of them, is completed, and what
    is whole in it stays. In an object store empty folders are left out, and the characters of file names
    that such stores rewrite are escaped (`%23` for `#`).

    Raises: CheckpointDamagedError, StorageError.
    """
    store = checkpoints.store
    target = store.local_path(key)
    if target is None or not _is_restored(checkpoints, uri, target):
        manifest = checkpoints.read_manifest(uri)
        # What is put piece by piece is asked for by the store's own thread, which can call no store.
        with ThreadPoolExecutor(1, thread_name_prefix="raysweep-export") as pool:
            objects = _Objects(checkpoints.reading(manifest), pool)
            for entry in manifest.files:
                _export(store, key, target, objects, entry)
    if target is not None:
        store.sync(*[f"{key}/{entry.path}" for entry in checkpoints.read_manifest(uri).files])


def _is_restored(checkpoints: CheckpointStore, uri: str, target: Path) -> bool:
    """Restore into a folder that is absent or empty; False where another process was faster."""
    try:
        checkpoints.restore(uri, target)
    except StorageError:
        if not target.is_dir() or not any(target.iterdir()):
            raise
        return False
    return True


def _export(store: Store, key: str, target: Path | None, objects: _Objects, entry: FileEntry) -> None:
    if target is None:
        retrying(GIVE_UP_AFTER_S)(_put, store, f"{key}/{escape(entry.path)}", objects, entry)
    elif not _is_whole(target / entry.path, objects, entry):
        _put(store, f"{key}/{entry.path}", objects, entry)
        (target / entry.path).chmod(0o755 if entry.executable else 0o644)


def _is_whole(path: Path, objects: _Objects, entry: FileEntry) -> bool:
    try:
        with path.open("rb") as file:
            has_all = all(file.read(len(piece)) == piece for piece in _pieces(objects, entry))
            return has_all and not file.read(1)
    except OSError:
        return False


class _Objects:
    """The objects of a checkpoint one by one; the last one is at hand, for small files share one."""

    def __init__(self, reading: Restore, pool: ThreadPoolExecutor) -> None:
        self._reading = reading
        self._pool = pool
        self._last: tuple[int, bytes] = (-1, b"")

    def read(self, index: int) -> bytes:
        if self._last[0] != index:
            self._last = (index, self._pool.submit(self._reading.whole, index).result())
        return self._last[1]


def _put(store: Store, key: str, objects: _Objects, entry: FileEntry) -> None:
    store.put_chunks(key, _pieces(objects, entry))


def _pieces(objects: _Objects, entry: FileEntry) -> Iterator[bytes]:
    for part in entry.parts:
        yield objects.read(part.object)[part.offset : part.offset + part.size_bytes]
