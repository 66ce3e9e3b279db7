"""A store around another: everything goes through one method, which a subclass overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeVar

from raysweep.storage.objects.store import ObjectInfo, Store

Operation = Literal["get", "put", "delete", "list", "head"]
T = TypeVar("T")


class WrappedStore:
    """Passes every call on, by way of `around`. Pieces of large objects are one operation.

    `url`: another name to go by than the inner store's.
    """

    def __init__(self, inner: Store, *, url: str | None = None) -> None:
        self.inner = inner
        self._url = inner.url if url is None else url

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        """Override: do something before or after `call`, or something else. `key`: the first, if several."""
        return call()

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes | None:
        return self.around("get", key, lambda: self.inner.get(key))

    def get_chunks(self, key: str) -> Iterator[bytes] | None:
        return self.around("get", key, lambda: self.inner.get_chunks(key))

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        self.around("put", key, lambda: self.inner.put(key, data, durable=durable))

    def sync(self, *keys: str) -> None:
        self.inner.sync(*keys)

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        return self.around("put", key, lambda: self.inner.put_if_absent(key, data, durable=durable))

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        return self.around("get", key, lambda: self.inner.get_versioned(key))

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        return self.around("put", key, lambda: self.inner.put_if_version(key, data, version))

    def put_chunks(self, key: str, chunks: Iterable[bytes], *, durable: bool = False) -> None:
        self.around("put", key, lambda: self.inner.put_chunks(key, chunks, durable=durable))

    def delete(self, *keys: str) -> None:
        if keys:
            self.around("delete", keys[0], lambda: self.inner.delete(*keys))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self.around("list", prefix, lambda: self.inner.list(prefix))

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        return self.around("list", prefix, lambda: self.inner.list_folders(prefix))

    def head(self, key: str) -> ObjectInfo | None:
        return self.around("head", key, lambda: self.inner.head(key))

    def exists(self, key: str) -> bool:
        return self.around("head", key, lambda: self.inner.exists(key))

    def check_writable(self) -> None:
        self.inner.check_writable()

    def local_path(self, key: str) -> Path | None:
        return self.inner.local_path(key)
