"""What a node keeps of checkpoints: read instead of the store, checked like it, bounded, never in the way."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import CheckpointDamagedError, SpecError
from raysweep.storage.checkpoints.manifest import StoredObject, hash_of
from raysweep.storage.checkpoints.node_cache import NodeCache, open_cache
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.wrapped import WrappedStore

FILES = {"large": random.Random(1).randbytes(9_000_000), "a": b"a" * 100, "b": b"b" * 200}


class Counting(WrappedStore):
    """A store that counts what is read of checkpoints' parts."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url))
        self.fetched: list[str] = []

    def get_chunks(self, key: str) -> Any:
        self.fetched.append(key)
        return super().get_chunks(key)


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest, store_url: Callable[[str], str]) -> Counting:
    return Counting(store_url(request.param))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def save(checkpoints: CheckpointStore, tmp_path: Path, number: int = 0) -> str:
    source = tmp_path / f"source-{number}"
    source.mkdir()
    for name, data in FILES.items():
        (source / name).write_bytes(data)
    return checkpoints.save("00000", number, source).uri


def restored(checkpoints: CheckpointStore, uri: str, target: Path) -> dict[str, bytes]:
    checkpoints.restore(uri, target)
    return {path.name: path.read_bytes() for path in target.iterdir()}


def test_what_this_node_has_stored_is_not_fetched(store: Counting, folder: Path, tmp_path: Path) -> None:
    uri = save(CheckpointStore(store, "s", cache=NodeCache(folder, 2**30)), tmp_path)
    again = CheckpointStore(store, "s", cache=NodeCache(folder, 2**30))
    assert restored(again, uri, tmp_path / "back") == FILES
    assert store.fetched == []


def test_what_one_has_fetched_another_need_not(store: Counting, folder: Path, tmp_path: Path) -> None:
    uri = save(CheckpointStore(store, "s"), tmp_path)
    for number in range(3):
        near = CheckpointStore(store, "s", cache=NodeCache(folder, 2**30))
        assert restored(near, uri, tmp_path / f"back-{number}") == FILES
    assert len(store.fetched) == len(set(store.fetched)) == 4
    assert restored(CheckpointStore(store, "s"), uri, tmp_path / "without") == FILES
    assert len(store.fetched) == 8


@pytest.mark.parametrize("spoil", ["bit", "short", "long", "empty"])
def test_what_has_changed_here_is_fetched_anew(
    store: Counting, folder: Path, tmp_path: Path, spoil: str
) -> None:
    cache = NodeCache(folder, 2**30)
    uri = save(CheckpointStore(store, "s", cache=cache), tmp_path)
    for path in folder.iterdir():
        data = path.read_bytes()
        flipped = bytes([data[0] ^ 1]) + data[1:]
        path.write_bytes({"bit": flipped, "short": data[:-1], "long": data + b"x", "empty": b""}[spoil])
    near = CheckpointStore(store, "s", cache=cache)
    assert restored(near, uri, tmp_path / "back") == FILES
    assert len(store.fetched) == 4
    assert restored(near, uri, tmp_path / "again") == FILES
    assert len(store.fetched) == 4, "and is whole here again"


def test_a_check_reads_the_store(store: Counting, folder: Path, tmp_path: Path) -> None:
    near = CheckpointStore(store, "s", cache=NodeCache(folder, 2**30))
    uri = save(near, tmp_path)
    (key,) = [info.key for info in store.list() if info.size_bytes == 300]
    store.put(key, b"x" * 300)
    with pytest.raises(CheckpointDamagedError, match="the content changed"):
        near.verify(uri)
    with pytest.raises(CheckpointDamagedError):
        CheckpointStore(store, "s").restore(uri, tmp_path / "back")
    assert restored(near, uri, tmp_path / "near") == FILES, "what was stored is at hand here"


def test_what_does_not_pass_the_check_is_not_kept(store: Counting, folder: Path, tmp_path: Path) -> None:
    uri = save(CheckpointStore(store, "s"), tmp_path)
    for info in list(store.list("s/checkpoints/00000")):
        if not info.key.endswith(".json"):
            store.put(info.key, b"?" * info.size_bytes)
    with pytest.raises(CheckpointDamagedError):
        CheckpointStore(store, "s", cache=NodeCache(folder, 2**30)).restore(uri, tmp_path / "back")
    assert list(folder.iterdir()) == []


def test_it_is_bounded_and_what_was_used_longest_ago_goes_first(folder: Path) -> None:
    cache = NodeCache(folder, 1_000_000)
    parts = [random.Random(number).randbytes(50_000) for number in range(60)]
    objects = [StoredObject(f"0-x/{hash_of(data)}", len(data), hash_of(data)) for data in parts]
    for number, (stored, data) in enumerate(zip(objects, parts, strict=True)):
        cache.add(stored, data)
        os.utime(folder / stored.hash, (number, number)) if (folder / stored.hash).exists() else None
        assert cache.read(objects[0]) is not None, "it is in use"
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert sum(sizes) <= 1_000_000 + 125_000, "a limit, and what is added between two looks"
    assert cache.read(objects[-1]) is not None
    assert cache.read(objects[1]) is None
    large = StoredObject("0-x/large", 300_000, "large")
    cache.add(large, b"l" * 300_000)
    assert cache.read(large) is None, "one part does not take the place of all"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EIO])
def test_a_disk_that_fails_costs_nothing_but_the_cache(
    store: Counting, folder: Path, tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("raysweep.storage.checkpoints.node_cache.os.replace", fail)
    near = CheckpointStore(store, "s", cache=NodeCache(folder, 2**30))
    uri = save(near, tmp_path)
    monkeypatch.undo()
    assert list(folder.iterdir()) == []
    assert restored(near, uri, tmp_path / "back") == FILES


def test_the_last_tenth_of_a_disk_is_not_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("usage", (), {"total": 1000, "free": 150})
    monkeypatch.setattr("raysweep.storage.checkpoints.node_cache.shutil.disk_usage", lambda _: usage)
    cache = NodeCache(folder, 2**30)
    cache.add(StoredObject("a", 40, "fits"), b"f" * 40)
    cache.add(StoredObject("b", 60, "does-not"), b"d" * 60)
    assert [path.name for path in folder.iterdir()] == ["fits"]


def test_it_is_the_users_own_or_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_STAGING", str(tmp_path))
    monkeypatch.setenv("RAYSWEEP_NODE_CACHE", "0")
    assert open_cache() is None
    monkeypatch.setenv("RAYSWEEP_NODE_CACHE", "1 KiB")
    assert open_cache() is not None
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert open_cache() is None, "somebody else has put a link there"
    monkeypatch.setenv("RAYSWEEP_STAGING", "/proc/nowhere")
    assert open_cache() is None


def test_a_local_folder_has_none(folder: Path, tmp_path: Path) -> None:
    near = CheckpointStore(open_store(str(tmp_path / "store")), "s", cache=NodeCache(folder, 2**30))
    assert restored(near, save(near, tmp_path), tmp_path / "back") == FILES
    assert list(folder.iterdir()) == []


def test_a_size_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_NODE_CACHE", "much")
    with pytest.raises(SpecError, match="RAYSWEEP_NODE_CACHE: 'much' is not an amount of bytes; write one"):
        open_cache()
