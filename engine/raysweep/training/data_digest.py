"""The digest of a training's data, as far as the spec names them.

Small data are hashed by content. Large data are hashed by their listing: names, sizes and modification
times of the objects. That changes with the data, and also when the same data are copied; reading terabytes
would take longer than the training. Data that the trainable reads by itself are not covered.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from blake3 import blake3

from raysweep.errors import RaysweepError, SpecError, StorageError
from raysweep.outcome import DataDigest
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import ObjectInfo, Store

MAX_READ_BYTES: Final = 256 * 2**20
"""Data of up to this size are hashed by content."""
MAX_OBJECTS: Final = 100_000
"""The most objects that are read, the first by name; a digest of more objects is marked as cut."""
_FIELD: Final = "data"


def digest_data(data: Mapping[str, str]) -> tuple[DataDigest, ...]:
    """The digest of each of the spec's data, by its name.

    Raises:
        SpecError: There is nothing at one of them.
        StorageError: One cannot be read.
    """
    return tuple(_digest(name, uri) for name, uri in sorted(data.items()))


def try_to_digest(data: Mapping[str, str]) -> tuple[DataDigest, ...] | None:
    """The same; None where it cannot be told now."""
    try:
        return digest_data(data)
    except RaysweepError:
        return None


def _digest(name: str, uri: str) -> DataDigest:
    store, only = _open(name, uri)
    found = _objects(store, only)
    objects = heapq.nsmallest(MAX_OBJECTS + 1, found, key=lambda each: each.key)
    is_cut = len(objects) > MAX_OBJECTS
    objects = objects[:MAX_OBJECTS]
    if not objects:
        raise SpecError(
            f"{_FIELD}.{name}", f"there is nothing at {uri!r}", "name a file, or a folder of files"
        )
    size_bytes = sum(each.size_bytes for each in objects)
    is_read = size_bytes <= MAX_READ_BYTES and not is_cut
    digest = _of_content(store, objects) if is_read else _of_listing(objects)
    return DataDigest(
        name=name,
        uri=uri,
        digest=digest,
        of="content" if is_read else "listing",
        objects=len(objects),
        size_bytes=size_bytes,
        is_cut=is_cut,
    )


def _open(name: str, uri: str) -> tuple[Store, str | None]:
    """The store with the data, and the one object that is meant; None: all."""
    if "://" not in uri or uri.startswith("file://"):
        path = Path(uri.removeprefix("file://")).expanduser().absolute()
        if not path.exists():
            raise SpecError(f"{_FIELD}.{name}", f"there is nothing at {uri!r}", "check the path")
        return (open_store(path), None) if path.is_dir() else (open_store(path.parent), path.name)
    folder, _, file = uri.rpartition("/")
    if file and not folder.endswith((":/", "://")) and _is_folder(folder):
        store = open_store(folder)
        if store.head(file) is not None:
            return store, file
    return open_store(uri), None


def _is_folder(uri: str) -> bool:
    return bool(uri.partition("://")[2].strip("/"))


def _objects(store: Store, only: str | None) -> Iterator[ObjectInfo]:
    if only is None:
        yield from store.list()
    elif (info := store.head(only)) is not None:
        yield info


def _of_content(store: Store, objects: list[ObjectInfo]) -> str:
    whole = blake3()
    for info in objects:
        each = blake3()
        chunks = store.get_chunks(info.key)
        if chunks is None:
            problem = "is gone: the training's data change while they are read"
            raise StorageError(f"{store.url}/{info.key}", problem, "run it again when they are complete")
        for chunk in chunks:
            each.update(chunk)
        whole.update(f"{info.key}\0{each.hexdigest()}\n".encode())
    return whole.hexdigest()


def _of_listing(objects: list[ObjectInfo]) -> str:
    whole = blake3()
    for info in objects:
        whole.update(f"{info.key}\0{info.size_bytes}\0{info.modified_at!r}\n".encode())
    return whole.hexdigest()
