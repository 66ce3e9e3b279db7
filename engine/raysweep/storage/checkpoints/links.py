"""A checkpoint that lies where user code has stored it: a manifest with its address, and no objects.

What is there is the user's: it is looked for, and read, and never written or deleted. An address is that of a
folder, or of one file: then a folder with that file is restored.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raysweep.errors import CheckpointDamagedError
from raysweep.storage.checkpoints.restores import CHOOSE_FIX, OnRead
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.store import ObjectInfo, Store

_THREADS: Final = 8
GONE: Final = "nothing is stored there any more (its address was reported; what is there is yours to keep)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """What lies at an address: `files` by their paths in the folder that is restored."""

    store: Store
    files: dict[str, ObjectInfo]

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(info.size_bytes for info in self.files.values())


def absolute(uri: str) -> str:
    """The address as another process finds it: a local path with its root."""
    local = uri.removeprefix("file://")
    return os.path.abspath(os.path.expanduser(local)) if "://" not in local else uri.rstrip("/")


def look(uri: str, give_up_after_s: float) -> Linked:
    """What lies at an absolute address; it may be nothing.

    Raises: StorageNotWritableError: it is no address. StorageError: its storage does not answer.
    """
    parent, slash, name = uri.rpartition("/")
    is_bucket = not slash or parent.endswith(("/", ":"))
    retry = retrying(give_up_after_s)
    if not is_bucket and name:
        store = open_store(parent or "/")
        if (info := retry(store.head, name)) is not None:
            return Linked(store=store, files={name: info})
    store = open_store(uri)
    found = retry(lambda: list(store.list()))
    return Linked(store=store, files={info.key: info for info in found})


def fetch(uri: str, target: Path, give_up_after_s: float, on_read: OnRead | None = None) -> None:
    """Copy what lies at an address into a folder that is there, and empty.

    Raises: CheckpointDamagedError: there is nothing any more. StorageError.
    """
    linked = look(uri, give_up_after_s)
    if not linked.files:
        raise CheckpointDamagedError(uri, GONE, CHOOSE_FIX)

    def copy(item: tuple[str, ObjectInfo]) -> None:
        path, info = target / item[0], item[1]
        path.parent.mkdir(parents=True, exist_ok=True)

        def write() -> int:
            pieces = linked.store.get_chunks(info.key)
            if pieces is None:
                raise CheckpointDamagedError(uri, f"{info.key} is not there any more", CHOOSE_FIX)
            with open(path, "wb") as file:
                return sum(file.write(piece) for piece in pieces)

        size_bytes = retrying(give_up_after_s)(write)
        if on_read is not None:
            on_read(size_bytes, linked.size_bytes)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="raysweep-restore") as pool:
        for _ in pool.map(copy, linked.files.items()):
            pass
