"""Reads many objects of a store, several at a time where each read is a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from raysweep.errors import OutsideStorageError
from raysweep.storage.objects.store import Store

T = TypeVar("T")
R = TypeVar("R")
BESIDE_RUNS: Final = frozenset({"aside", "budgets", "catalog", "champions", "decided"})
"""Folders of a storage path that are no run's."""
_THREADS: Final = 32


def each_of(store: Store, read: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results of reading each item, in their order. On a local disk it is read on this thread."""
    if len(items) <= 1 or store.local_path("sweep.json") is not None:
        return [read(item) for item in items]
    with ThreadPoolExecutor(min(_THREADS, len(items))) as pool:
        return list(pool.map(read, items))


def run_folders(store: Store) -> tuple[str, ...]:
    """The folders of a storage path that may be runs, sorted. Raises: StorageError."""
    return tuple(folder for folder in store.list_folders() if folder not in BESIDE_RUNS)


def folders_with(store: Store, name: str) -> list[str]:
    """The runs that have an object of this name, sorted; a request for each. Raises: StorageError."""
    folders = run_folders(store)
    has = each_of(store, lambda folder: seems_there(store, f"{folder}/{name}"), folders)
    return [folder for folder, is_there in zip(folders, has, strict=True) if is_there]


def seems_there(store: Store, key: str) -> bool:
    """True if there is such an object, or a link out of the storage path: reading it tells that.

    Raises: StorageError.
    """
    try:
        return store.exists(key)
    except OutsideStorageError:
        return True
