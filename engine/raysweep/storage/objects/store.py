"""One object store under one `storage_path`: a local folder, S3, GCS, Azure or memory.

`opening.open_store` picks the implementation. Local folders are plain file calls (`local.py`): they work in
forked children, and a durable put is on the disk before it has a name. The rest is obstore (`remote.py`).
Keys are relative, `/`-separated and never contain empty, `.` or `..` parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raysweep.errors import StorageError

CHUNK_BYTES = 4 * 1024 * 1024
"""The part of a large object that is held in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object in a listing."""

    key: str
    size_bytes: int
    modified_at: float
    """Seconds since the epoch."""


class Store(Protocol):
    """The calls that raysweep needs of an object store.

    Every call raises `StorageError` (or a subclass) when it fails.
    """

    @property
    def url(self) -> str:
        """The address of the store, an absolute local path or `s3://bucket/prefix`: for `open_store(url)`."""
        ...

    def get(self, key: str) -> bytes | None:
        """The whole object, or None if there is none."""
        ...

    def get_chunks(self, key: str) -> Iterator[bytes] | None:
        """The object piece by piece (at most a few MiB each), or None if there is none."""
        ...

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        """Create or replace an object atomically. `durable`: it survives a power cut once this returns."""
        ...

    def sync(self, *keys: str) -> None:
        """Have what was put without `durable` survive a power cut once this returns.

        Raises: StorageError: it may not; put it again, for a second sync could succeed without reason.
        """
        ...

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        """Create an object atomically; False, and nothing changes, if one exists.

        `durable`: whichever it is, it survives a power cut once this returns.
        """
        ...

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The whole object and its version, for `put_if_version`; None if there is none."""
        ...

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        """Replace an object durably if it still has this version (None: if there is none); else False."""
        ...

    def put_chunks(self, key: str, chunks: Iterable[bytes], *, durable: bool = False) -> None:
        """Create or replace a large object from pieces; it appears only when it is whole."""
        ...

    def delete(self, *keys: str) -> None:
        """Delete objects; those that do not exist are no error."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below the folder `prefix`, in no particular order."""
        ...

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        """Names of the folders directly below `prefix`, sorted."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Size and time of one object, or None if there is none."""
        ...

    def exists(self, key: str) -> bool:
        """True if there is such an object."""
        ...

    def check_writable(self) -> None:
        """Try out a write and leave nothing behind.

        Raises: StorageNotWritableError, StorageUnavailableError.
        """
        ...

    def local_path(self, key: str) -> Path | None:
        """The path of the object on this machine's file system; None for remote stores."""
        ...


def check_key(key: str) -> str:
    """Refuse a key that could leave the store's root or that stores spell differently.

    Raises: StorageError.
    """
    if "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise StorageError(
            key, f"{key!r} is not a valid object key", "use relative keys without empty, . or .. parts"
        )
    return key
