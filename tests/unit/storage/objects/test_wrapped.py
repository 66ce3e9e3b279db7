"""A wrapped store is the store inside; each operation comes by `around` once, under its name and key."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import StorageUnavailableError
from raysweep.faultplan import FaultPlan
from raysweep.storage.objects.local import LocalStore
from raysweep.storage.objects.opening import FaultyStore, open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, WrappedStore


class NotingStore(WrappedStore):
    """Notes what comes by."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.noted: list[tuple[str, str]] = []

    def around(self, operation: Operation, key: str, call: Callable[[], Any]) -> Any:
        """See the class."""
        self.noted.append((operation, key))
        return call()


def test_every_operation_reaches_the_store_inside(tmp_path: Path) -> None:
    inner = open_store(tmp_path)
    store = NotingStore(inner)
    store.put("a/1", b"one", durable=True)
    assert inner.get("a/1") == store.get("a/1") == b"one"
    assert store.put_if_absent("b/2", b"two", durable=True)
    assert not store.put_if_absent("b/2", b"late")
    store.put_chunks("a/3", iter([b"th", b"ree"]), durable=True)
    chunks = store.get_chunks("a/3")
    assert chunks is not None
    assert b"".join(chunks) == b"three"
    found = store.get_versioned("a/1")
    assert found == inner.get_versioned("a/1")
    assert found is not None
    assert store.put_if_version("a/1", b"1", found[1])
    assert not store.put_if_version("a/1", b"2", found[1])
    assert {item.key for item in store.list("a")} == {"a/1", "a/3"}
    assert store.list_folders() == ("a", "b")
    assert store.head("a/1") == inner.head("a/1")
    assert store.exists("a/1")
    store.delete()
    store.delete("a/3", "a/1")
    assert not inner.exists("a/1")
    assert not inner.exists("a/3")
    assert store.noted == [
        *[("put", "a/1"), ("get", "a/1"), ("put", "b/2"), ("put", "b/2"), ("put", "a/3"), ("get", "a/3")],
        *[("get", "a/1"), ("put", "a/1"), ("put", "a/1"), ("list", "a"), ("list", ""), ("head", "a/1")],
        *[("head", "a/1"), ("delete", "a/3")],
    ]
    assert store.url == inner.url
    assert store.local_path("a/1") == inner.local_path("a/1") is not None
    store.check_writable()


def test_durable_stays_durable(tmp_path: Path) -> None:
    """What only a power cut would show: the store inside hears of it."""
    heard: list[bool] = []

    class Listening(LocalStore):
        def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
            heard.append(durable)

        def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
            heard.append(durable)
            return True

        def put_chunks(self, key: str, chunks: Any, *, durable: bool = False) -> None:
            heard.append(durable)

    store = NotingStore(Listening(tmp_path))
    for is_durable in (True, False):
        store.put("a", b"", durable=is_durable)
        store.put_if_absent("a", b"", durable=is_durable)
        store.put_chunks("a", [], durable=is_durable)
    store.put("a", b"")
    store.put_if_absent("a", b"")
    store.put_chunks("a", [])
    assert heard == [True] * 3 + [False] * 6


def test_faults_are_met_at_the_operation_and_key_they_name(tmp_path: Path) -> None:
    plan = FaultPlan(str(tmp_path / "faults")).fail_store("put", match="a")
    with plan.active():
        store = open_store(tmp_path / "store")
        assert isinstance(store, FaultyStore)
        again = pickle.loads(pickle.dumps(store))  # noqa: S301  as a worker gets it, from this sweep's controller
        store.put("sweep/b", b"")
        assert store.get("sweep/a") is None
        with pytest.raises(StorageUnavailableError):
            store.put("sweep/a", b"")
        assert not store.exists("sweep/a"), "it fails before it does anything"
    assert isinstance(again, FaultyStore)
    assert again.url == store.url
    plan.assert_fired()
