"""A checkpoint that lies where user code has stored it: a manifest with its address, and no objects.

What is there is the user's: it is looked for, and read, and never written or deleted. An address is that of a
folder, or of one file: then a folder with that file is restored. A manifest is data that others may have
written: an address outside of the storage path is followed only where the caller says so (`follows`).
"""

from __future__ import annotations

import os
import posixpath
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raysweep.documents.stored_paths import HERE, is_absolute, to_reference
from raysweep.errors import CheckpointDamagedError, OutsideStorageError
from raysweep.storage.checkpoints.restores import CHOOSE_FIX, OnRead
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.store import ObjectInfo, Store

_THREADS: Final = 8
FOLLOW: Final = "--follow"
OUTSIDE: Final = "is where a trial says it stored its checkpoint itself, outside the storage path"
GONE: Final = "nothing is stored there any more (its address was reported; what is there is yours to keep)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The contents of an address: `files` by their paths in the folder that is restored."""

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
    """The contents of an absolute address; there may be none.

    Raises: StorageNotWritableError: it is no address. StorageError: its storage does not answer.
    """
    # What the address itself leads to by a symbolic link is what its owner means.
    uri = os.path.realpath(uri) if "://" not in uri else uri
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


def look_from(store: Store, uri: str, give_up_after_s: float, *, follows: bool) -> Linked:
    """The contents of an address that is stored at `store`; there may be none.

    Raises: OutsideStorageError: it lies elsewhere, and is not to be followed. StorageError.
    """
    key = _key_in(store, uri)
    if key is None and not follows:
        raise OutsideStorageError(
            uri, OUTSIDE, f"see what is there; then `raysweep pull {FOLLOW}` fetches it"
        )
    if key is None:
        return look(uri, give_up_after_s)
    retry = retrying(give_up_after_s)
    if (info := retry(store.head, key)) is not None:
        return Linked(store=store, files={posixpath.basename(key): info})
    found = retry(lambda: list(store.list(key)))
    return Linked(store=store, files={info.key.removeprefix(f"{key}/"): info for info in found})


def _key_in(store: Store, uri: str) -> str | None:
    """The key of what lies in the store; None for what lies elsewhere, and for the whole store."""
    reference = to_reference(store.url, absolute(uri))
    is_below = reference != HERE and not is_absolute(reference) and ".." not in reference.split("/")
    return reference if is_below else None


def fetch(linked: Linked, uri: str, target: Path, give_up_after_s: float, on_read: OnRead | None) -> None:
    """Copy what lies at an address into a folder that is there, and empty.

    Raises: CheckpointDamagedError: there is nothing any more. StorageError.
    """
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
