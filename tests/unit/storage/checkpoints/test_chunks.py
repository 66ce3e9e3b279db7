"""Checkpoints that share what they have in common: each byte stored once, nothing that is needed deleted."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fcntl import F_GETFL, fcntl
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import CheckpointDamagedError, SpecError, StorageError
from raysweep.storage.checkpoints.manifest import Manifest
from raysweep.storage.checkpoints.store import CheckpointStore, restore_uri
from raysweep.storage.checkpoints.uploads import CHUNK_BYTES, SMALL_BYTES
from raysweep.storage.objects import local
from raysweep.storage.objects.local import LocalStore
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.sealed import encode_sealed
from raysweep.storage.objects.store import ObjectInfo, Store
from raysweep.storage.objects.wrapped import WrappedStore
from tests.unit.storage.folders import content, read, write

ROOT = Path(__file__).parents[4]


def stored_bytes(store: Store) -> int:
    return sum(info.size_bytes for info in store.list() if not info.key.endswith(".json"))


def test_what_the_parent_holds_is_not_stored_again(store: Store, tmp_path: Path) -> None:
    checkpoints = CheckpointStore(store, "s")
    body = os.urandom(2 * CHUNK_BYTES) + b"0"  # one byte, and another than that of `step`
    first = write(tmp_path / "1", {"body": body, "head": b"1" * SMALL_BYTES, "step": b"1"})
    second = write(tmp_path / "2", {"body": body, "head": b"2" * SMALL_BYTES, "step": b"2"})
    parent = checkpoints.read_manifest(checkpoints.save("t", 0, first))
    assert parent.new_bytes == parent.size_bytes == len(body) + SMALL_BYTES + 1
    ref = checkpoints.save("t", 1, second, parent=parent)
    child = checkpoints.read_manifest(ref)
    assert child.size_bytes == parent.size_bytes
    assert child.new_bytes == SMALL_BYTES + 1
    assert stored_bytes(store) == parent.size_bytes + SMALL_BYTES + 1
    restore_uri(ref.uri, tmp_path / "out")
    assert read(tmp_path / "out") == read(second)


def test_content_that_repeats_within_a_checkpoint_is_stored_once(store: Store, tmp_path: Path) -> None:
    same = os.urandom(CHUNK_BYTES)
    folder = write(tmp_path / "in", {"a": same, "b": same + same, "c": same[:-1]})
    ref = CheckpointStore(store, "s").save("t", 0, folder)
    assert stored_bytes(store) == 2 * CHUNK_BYTES - 1
    restore_uri(ref.uri, tmp_path / "out")
    assert read(tmp_path / "out") == read(folder)


def test_thousands_of_tiny_files_are_a_few_objects(store: Store, tmp_path: Path) -> None:
    chance = random.Random(1)
    files = {f"d{index % 7}/ü {index}": chance.randbytes(chance.randrange(3000)) for index in range(3000)}
    folder = write(tmp_path / "in", files)
    (folder / "empty").mkdir()
    ref = CheckpointStore(store, "s").save("t", 0, folder)
    assert len(list(store.list())) <= 3, "two packs at most, and the manifest"
    restore_uri(ref.uri, tmp_path / "out")
    assert read(tmp_path / "out") == files
    assert (tmp_path / "out" / "empty").is_dir()


@pytest.mark.parametrize("size_bytes", [1, SMALL_BYTES - 1, SMALL_BYTES, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_sizes_at_the_bounds(tmp_path: Path, size_bytes: int) -> None:
    folder = write(tmp_path / "in", {"a": os.urandom(size_bytes), "b": b"x", "c": b""})
    ref = CheckpointStore.at(str(tmp_path / "store"), "s").save("t", 0, folder)
    restore_uri(ref.uri, tmp_path / "out")
    assert read(tmp_path / "out") == read(folder)


def test_a_carried_file_need_not_be_there(tmp_path: Path) -> None:
    checkpoints = CheckpointStore.at(str(tmp_path / "store"), "s")
    first = {"big": os.urandom(CHUNK_BYTES + 5), "sub/small": b"small", "step": b"0"}
    parent = checkpoints.read_manifest(checkpoints.save("t", 0, write(tmp_path / "in", first)))
    carried = {entry.path: entry for entry in parent.files if entry.path != "step"}
    ref = checkpoints.save("t", 1, write(tmp_path / "in", {"step": b"1"}), parent=parent, carried=carried)
    checkpoints.delete(parent_uri := checkpoints.uri("t", 0))
    assert not checkpoints.exists(parent_uri)
    restore_uri(ref.uri, tmp_path / "out")
    assert read(tmp_path / "out") == {**first, "step": b"1"}


def test_random_lives_of_a_trials_checkpoints(tmp_path: Path) -> None:
    """Save, delete and abandon in any order: what is left is whole, and nothing is left behind."""
    chance = random.Random(7)
    blocks = [chance.randbytes(SMALL_BYTES) for _ in range(6)]
    store = open_store(tmp_path / "store")
    checkpoints = CheckpointStore(store, "s")
    alive: dict[int, dict[str, bytes]] = {}
    for number in range(60):
        files = {f"f{place}": chance.choice(blocks) for place in range(4)}
        parent = checkpoints.read_manifest(checkpoints.uri("t", max(alive))) if alive else None
        if chance.random() < 0.2:
            with pytest.raises(KeyboardInterrupt):
                checkpoints.save("t", number, write(tmp_path / "in", files), parent=parent, go_on=_after(2))
            continue
        checkpoints.save("t", number, write(tmp_path / "in", files), parent=parent)
        alive[number] = files
        while len(alive) > 1 and chance.random() < 0.6:
            gone = chance.choice(sorted(alive)[:-1])
            checkpoints.delete(checkpoints.uri("t", gone))
            del alive[gone]
        for left, expected in alive.items():
            target = tmp_path / "out" / f"{number}-{left}"
            restore_uri(checkpoints.uri("t", left), target)
            assert read(target) == expected
    needed = {
        checkpoints.addresses.object_key(manifest, each)
        for manifest in map(checkpoints.read_manifest, (checkpoints.uri("t", left) for left in alive))
        for each in manifest.objects
    }
    there = {info.key for info in store.list() if not info.key.endswith(".json")}
    assert needed <= there
    newest = max(alive)
    surplus = {key for key in there - needed if int(key.split("/")[3].partition("-")[0]) <= newest}
    checkpoints.delete(checkpoints.uri("t", newest))
    assert not surplus & {info.key for info in store.list()}
    for left in sorted(alive):
        checkpoints.delete(checkpoints.uri("t", left))
    assert list(store.list()) == []


def _after(times: int) -> Callable[[], None]:
    calls = itertools.count()

    def go_on() -> None:
        if next(calls) == times:
            raise KeyboardInterrupt

    return go_on


class Dying(WrappedStore):
    """Ends its user at the nth change of the store, before or after it is made."""

    def __init__(self, inner: Store, nth: int, *, is_late: bool) -> None:
        super().__init__(inner)
        self.left = nth
        self.is_late = is_late

    def around(self, operation: Any, key: str, call: Callable[[], Any]) -> Any:
        if operation not in ("put", "delete"):
            return call()
        self.left -= 1
        if self.left < 0:
            raise SystemExit("dead")
        if self.left == 0:
            if self.is_late:
                call()
            raise SystemExit("dead")
        return call()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_death_at_every_step_of_a_save_and_a_delete(tmp_path: Path, is_late: bool) -> None:
    """Whatever is committed is whole; and the next delete in the trial leaves nothing that is not needed."""
    body = os.urandom(2 * CHUNK_BYTES)
    ends = 0
    for nth in itertools.count(1):
        store = open_store(tmp_path / f"store-{nth}")
        safe = CheckpointStore(store, "s")
        parent = safe.read_manifest(safe.save("t", 0, write(tmp_path / "in", {"body": body, "head": b"0"})))
        dying = CheckpointStore(Dying(store, nth, is_late=is_late), "s")
        new = {"body": body[:CHUNK_BYTES] + os.urandom(CHUNK_BYTES), "head": b"1"}
        try:
            dying.save("t", 1, write(tmp_path / "in", new), parent=parent)
            dying.delete(dying.uri("t", 0))
            died = False
        except SystemExit:
            died = True
            ends += 1
        numbers = safe.numbers("t")
        assert numbers, "the parent is deleted only after the child is committed"
        for number in numbers:
            safe.verify(safe.uri("t", number))
        if 1 in numbers:
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            safe.restore(safe.uri("t", 1), tmp_path / "out")
            assert read(tmp_path / "out") == new
        for number in numbers:  # a controller that starts again deletes what its journal lets go of
            safe.delete(safe.uri("t", number))
        safe.delete(safe.uri("t", 1))
        assert list(store.list()) == [], f"died at {nth}"
        if not died:
            break
    assert ends >= 4, "two objects, the manifest, and the deletion"


class Racing(LocalStore):
    """Commits the next checkpoint, and deletes its parent, while the nth listing of `delete` is read."""

    def __init__(self, root: Path, nth: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self.left = nth
        self.meanwhile: Callable[[], None] | None = meanwhile

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        listed = list(super().list(prefix))
        self.left -= 1
        call = self.meanwhile
        if self.left == 0 and call is not None:
            self.meanwhile = None
            call()
            # The listing had passed where the child is now, and finds that the parent is gone.
            listed = [info for info in listed if self.exists(info.key)]
        yield from listed


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_delete_beside_a_commit_and_a_delete(tmp_path: Path, nth: int) -> None:
    """0 is deleted while 2, which shares with 0 by way of 1, is committed, and 1 is deleted elsewhere.

    By a controller, say, that was superseded and does not know it yet.
    """
    body = os.urandom(CHUNK_BYTES)
    safe = CheckpointStore.at(str(tmp_path / "store"), "s")
    first = safe.read_manifest(safe.save("t", 0, write(tmp_path / "in", {"body": body, "n": b"0"})))
    second = safe.read_manifest(
        safe.save("t", 1, write(tmp_path / "in", {"body": body, "n": b"1"}), parent=first)
    )

    def meanwhile() -> None:
        safe.save("t", 2, write(tmp_path / "in", {"body": body, "n": b"2"}), parent=second)
        safe._deletion("t")._delete([1])  # another process: our lock would wait for ourselves

    store = Racing(tmp_path / "store", nth, meanwhile)
    CheckpointStore(store, "s").delete(safe.uri("t", 0))
    assert store.meanwhile is None
    assert safe.numbers("t") == (2,)
    safe.verify(safe.uri("t", 2))


def test_nothing_is_deleted_beside_a_manifest_that_cannot_be_read(store: Store, tmp_path: Path) -> None:
    """What it refers to is not known; its owner may restore it from a backup."""
    checkpoints = CheckpointStore(store, "s")
    parent = checkpoints.read_manifest(
        checkpoints.save("t", 0, write(tmp_path / "in", {"a": b"a" * SMALL_BYTES}))
    )
    checkpoints.save("t", 1, tmp_path / "in", parent=parent)
    kept = store.get("s/checkpoints/t/1.json")
    assert kept is not None
    store.put("s/checkpoints/t/1.json", kept[:-9])
    with pytest.raises(CheckpointDamagedError):
        checkpoints.delete(checkpoints.uri("t", 0))
    store.put("s/checkpoints/t/1.json", kept)
    checkpoints.verify(checkpoints.uri("t", 1))


def test_a_file_that_shrinks_fails_the_save(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"a": os.urandom(2 * CHUNK_BYTES)})
    store = open_store(tmp_path / "store")

    def cut() -> None:
        os.truncate(folder / "a", CHUNK_BYTES)

    with pytest.raises(SpecError, match="become shorter"):
        CheckpointStore(store, "s").save("t", 0, folder, go_on=cut)
    assert list(store.list()) == []


class Unsynced(WrappedStore):
    """The first syncs fail; a second one would succeed without reason."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.failed: list[str] = []
        self.written_again: list[str] = []

    def sync(self, *keys: str) -> None:
        self.failed += keys
        raise StorageError(keys[0], "Input/output error")

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        if durable:
            self.written_again.append(key)
        super().put(key, data, durable=durable)


def test_what_was_not_synced_is_written_again(tmp_path: Path) -> None:
    store = Unsynced(open_store(tmp_path / "store"))
    folder = write(tmp_path / "in", {"a": os.urandom(CHUNK_BYTES + SMALL_BYTES), "b": b"x"})
    ref = CheckpointStore(store, "s").save("t", 0, folder)
    assert len(store.failed) == 3
    assert store.written_again == store.failed
    CheckpointStore(store.inner, "s").verify(ref)


def test_a_sync_has_the_disk_hold_what_was_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    # Only the system knows what is on the disk: what is asked of it is all that can be seen.
    monkeypatch.setattr(os, "fsync", note)
    store = open_store(tmp_path / "store")
    store.put("a/b/c", b"x")
    assert not synced
    store.sync("a/b/c")
    for path in ("a/b/c", "a/b", "a", ""):
        assert (tmp_path / "store" / path).stat().st_ino in synced, path
    with pytest.raises(StorageError):
        store.sync("a/b/none")


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [[0, 0, 2]]},
        {"parts": [[1, 0, 1]]},
        {"parts": [[0, 1, 1]]},
        {"parts": [[-1, 0, 1]]},
        {"parts": [[0, -1, 1]]},
        {"parts": []},
        {"parts": 3},
        {"size_bytes": 2},
    ],
)
def test_a_manifest_that_does_not_fit_together_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    from raysweep.storage.objects.sealed import decode_sealed

    checkpoints = CheckpointStore.at(str(tmp_path / "store"), "s")
    ref = checkpoints.save("t", 0, write(tmp_path / "in", {"a": b"a"}))
    store = checkpoints.store
    body = decode_sealed(store.get("s/checkpoints/t/0.json") or b"")
    assert body is not None
    body["files"][0].update(change)
    store.put("s/checkpoints/t/0.json", encode_sealed(body))
    with pytest.raises(CheckpointDamagedError, match="manifest"):
        checkpoints.restore(ref, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    from raysweep.storage.objects.sealed import decode_sealed

    checkpoints = CheckpointStore.at(str(tmp_path / "store"), "s")
    ref = checkpoints.save("t", 0, write(tmp_path / "in", {"a": b"a"}))
    body = decode_sealed(checkpoints.store.get("s/checkpoints/t/0.json") or b"")
    assert body is not None
    checkpoints.store.put("s/checkpoints/t/0.json", encode_sealed({**body, "version": 3}))
    with pytest.raises(CheckpointDamagedError):
        checkpoints.read_manifest(ref)
    assert isinstance(Manifest.size_bytes, property)


SAVER = """
import random, sys
from pathlib import Path
from raysweep.storage.checkpoints.store import CheckpointStore
from tests.unit.storage.folders import content, write

store, parent = CheckpointStore.at(sys.argv[1], "s"), None
first = int(sys.argv[2])
print("ready", flush=True)
for number in range(first, first + 1000):
    folder = write(Path(sys.argv[3]), content(number))
    parent = store.save("t", number, folder, parent=parent).manifest
    if number - 2 >= first:
        store.delete(store.uri("t", number - 2))
"""


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_worker_that_is_killed_at_any_moment(tmp_path: Path, kills: int) -> None:
    """What is committed is what was saved, byte for byte; and the next attempt's deletions leave nothing."""
    chance = random.Random(kills)
    checkpoints = CheckpointStore.at(str(tmp_path / "store"), "s")
    for kill in range(kills):
        command = [
            sys.executable,
            "-c",
            SAVER,
            str(tmp_path / "store"),
            str(1000 * kill),
            str(tmp_path / "in"),
        ]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as saver:
            assert saver.stdout is not None
            assert saver.stdout.readline() == "ready\n"
            time.sleep(chance.random() * 0.3)
            saver.kill()
        for number in checkpoints.numbers("t"):
            target = tmp_path / "out" / f"{kill}-{number}"
            checkpoints.restore(checkpoints.uri("t", number), target)
            assert read(target) == content(number)
    for number in checkpoints.numbers("t"):
        checkpoints.delete(checkpoints.uri("t", number))
    write(tmp_path / "in", content(0))
    last = checkpoints.save("t", 1000 * kills, tmp_path / "in")
    checkpoints.delete(last)
    assert list(checkpoints.store.list()) == []


def test_a_large_object_goes_around_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    direct: list[int] = []
    write = os.write

    def note(descriptor: int, data: memoryview) -> int:
        if fcntl(descriptor, F_GETFL) & os.O_DIRECT:
            direct.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", note)
    monkeypatch.setattr(local, "_CACHED_BYTES", 2 * CHUNK_BYTES)
    (tmp_path / "in").mkdir()
    store = CheckpointStore.at(str(tmp_path / "store"), "s")
    for number, chunks in enumerate((2, 4, 2), start=1):  # one that is small enough, before and after
        body = os.urandom(chunks * CHUNK_BYTES + 5000)  # the end is no whole block
        (tmp_path / "in" / "model").write_bytes(body)
        ref = store.save("00000", number, tmp_path / "in")
        if number == 2 and not direct:
            pytest.skip("this file system has no such writes")
        assert sum(direct) == (0 if number == 1 else 2 * CHUNK_BYTES)
        store.restore(ref, tmp_path / f"back{number}")
        assert (tmp_path / f"back{number}" / "model").read_bytes() == body


@pytest.mark.parametrize("refused", ["the flag", "the first write", "the second write"])
def test_a_file_system_without_such_writes_gets_the_same_bytes(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write
    direct: list[int] = []

    def flags(descriptor: int, command: int, argument: int = 0) -> int:
        if refused == "the flag" and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return fcntl(descriptor, command, argument)

    def write(descriptor: int, data: memoryview) -> int:
        if fcntl(descriptor, F_GETFL) & os.O_DIRECT:
            direct.append(len(data))
            if len(direct) == 1 + (refused == "the second write"):
                raise OSError(errno.EINVAL, "Invalid argument")
            return whole(descriptor, data[: 3 * 4096])
        return whole(descriptor, data)

    monkeypatch.setattr(local, "_CACHED_BYTES", 0)
    monkeypatch.setattr(local, "fcntl", flags)
    monkeypatch.setattr(os, "write", write)
    data = mmap(-1, CHUNK_BYTES)
    data[:] = body = os.urandom(CHUNK_BYTES)
    store = open_store(tmp_path / "store")
    store.put("a", memoryview(data))
    assert store.get("a") == body


def test_a_folder_is_synced_once_for_many_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder_syncs(chunks: int) -> int:
        synced: list[int] = []
        fsync = os.fsync

        def note(descriptor: int) -> None:
            synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
            fsync(descriptor)

        source = tmp_path / f"in-{chunks}"
        source.mkdir()
        (source / "model").write_bytes(os.urandom(chunks * CHUNK_BYTES))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", note)
            CheckpointStore.at(str(tmp_path / f"store-{chunks}"), "s").save("00000", 1, source)
        assert len(synced) - sum(synced) >= chunks, "each object was synced"
        return sum(synced)

    assert folder_syncs(16) <= folder_syncs(1) + 1
