"""The files of a model: copied for one evaluation, and their digest.

A model is what lies below its folder. The cost grows with its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from blake3 import blake3

from raysweep.errors import RaysweepError, StorageError, one_line
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

NO_FILES: Final = "has no files"
_FIX: Final = "restore it from a backup, or train again under another key"


class ModelChangedError(RaysweepError):
    """The files of a model are not those that were released or judged."""


def digest_of_model(uri: str) -> str:
    """BLAKE3 of the files of a model with their names. Raises: StorageError: they are not there."""
    return _read(open_store(uri), lambda key: lambda chunk: None)


def why_changed(uri: str, digest: str) -> str:
    """The difference of a model's files from those of a digest; empty: none, or there is no digest."""
    if not digest:
        return ""
    try:
        now = digest_of_model(uri)
    except StorageError as error:
        return f"the model that was judged cannot be read: {one_line(str(error), 200)}"
    return "" if now == digest else changed_text(uri, now, digest)


def changed_text(uri: str, now: str, digest: str) -> str:
    """`the files of the model at … changed since they were judged: …`."""
    head = f"the files of the model at {uri} changed since they were judged"
    return f"{head}: their digest is {now[:12]}, not {digest[:12]}"


def copy_model(uri: str, target: Path) -> str:
    """Copy a model's files below an empty folder; the digest of what was copied.

    Raises: StorageError: They are not there, or cannot be read.
    """
    store = open_store(uri)

    def writer(key: str) -> Callable[[bytes], object]:
        path = target / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

        def write(chunk: bytes) -> None:
            with path.open("ab") as file:
                file.write(chunk)

        return write

    return _read(store, writer)


def _read(store: Store, writer: Callable[[str], Callable[[bytes], object]]) -> str:
    keys = sorted(info.key for info in store.list())
    if not keys:
        raise StorageError(store.url, NO_FILES, _FIX)
    whole = blake3()
    for key in keys:
        each, write = blake3(), writer(key)
        chunks = store.get_chunks(key)
        if chunks is None:
            raise StorageError(f"{store.url}/{key}", "is gone: the model changes while it is read", _FIX)
        for chunk in chunks:
            each.update(chunk)
            write(chunk)
        whole.update(f"{key}\0{each.hexdigest()}\n".encode())
    return whole.hexdigest()
