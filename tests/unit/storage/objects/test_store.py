"""Stores: the same behaviour from a folder, memory and S3."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raysweep.errors import SpecError, StorageError, StorageNotWritableError, StorageUnavailableError
from raysweep.storage.objects import local
from raysweep.storage.objects.local import TEMPORARY_MARK
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.remote import _first_line
from raysweep.storage.objects.store import Store


def test_put_get_delete(store: Store) -> None:
    assert store.get("a/b") is None
    assert store.head("a/b") is None
    assert not store.exists("a/b")
    store.put("a/b", b"one", durable=True)
    store.put("a/b", b"two!")
    assert store.get("a/b") == b"two!"
    info = store.head("a/b")
    assert info is not None
    assert (info.key, info.size_bytes) == ("a/b", 4)
    assert store.exists("a/b")
    assert not store.exists("a")
    store.delete("a/b", "never/was")
    store.delete("a/b")
    assert store.get("a/b") is None
    assert list(store.list()) == []


def test_put_if_absent_lets_one_win(store: Store) -> None:
    won: list[int] = []
    barrier = threading.Barrier(6)

    def attempt(index: int) -> None:
        barrier.wait()
        if store.put_if_absent("deep/er/key", b"%d" % index, durable=True):
            won.append(index)

    threads = [threading.Thread(target=attempt, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("deep/er/key") == b"%d" % won[0]
    assert not store.put_if_absent("deep/er/key", b"late")


def test_put_if_version_replaces_what_was_read_and_nothing_newer(store: Store) -> None:
    assert store.put_if_version("a/key", b"1", None) is True
    assert store.put_if_version("a/key", b"late", None) is False
    found = store.get_versioned("a/key")
    assert found is not None
    assert store.put_if_version("a/key", b"2", found[1]) is True
    assert store.put_if_version("a/key", b"3", found[1]) is False
    store.delete("a/key")
    assert store.put_if_version("a/key", b"4", found[1]) is False
    assert store.get_versioned("a/key") is None


def test_list_is_by_folder(store: Store) -> None:
    keys = {"a/1", "a/b/2", "ab/3", "4", "a/ü ä/%41"}
    for key in keys:
        store.put(key, b"x")
    assert {info.key for info in store.list()} == keys
    assert {info.key for info in store.list("a")} == {"a/1", "a/b/2", "a/ü ä/%41"}
    assert list(store.list("nothing")) == []
    assert store.list_folders() == ("a", "ab")
    assert store.list_folders("a") == ("b", "ü ä")
    assert store.list_folders("nothing") == ()


def test_large_objects_go_in_pieces(store: Store) -> None:
    chunks = [bytes([n]) * 1_000_000 for n in range(20)]
    store.put_chunks("big", iter(chunks), durable=True)
    assert store.head("big").size_bytes == 20_000_000  # type: ignore[union-attr]
    read = store.get_chunks("big")
    assert read is not None
    assert b"".join(read) == b"".join(chunks)
    assert store.get_chunks("nothing") is None
    store.put_chunks("none", iter([]))
    assert store.get("none") == b""
    store.put_chunks("big", iter([b"another", b" one"]))
    assert store.get("big") == b"another one"


def test_a_put_that_fails_half_way_leaves_nothing(store: Store) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * 9_000_000
        raise SpecError("checkpoint", "vanished")

    with pytest.raises(SpecError, match="vanished"):
        store.put_chunks("a/big", chunks())
    assert store.get("a/big") is None
    assert list(store.list()) == []


@pytest.mark.parametrize("key", ["", "../up", "a//b", "/a", "a/", "a/./b", "a/../b", "a\0b"])
def test_keys_stay_inside(store: Store, key: str) -> None:
    for call in (store.get, store.head, lambda k: store.put(k, b""), lambda k: store.put_if_absent(k, b"")):
        with pytest.raises(StorageError):
            call(key)


def test_check_writable_leaves_nothing_behind(store: Store) -> None:
    store.check_writable()
    assert list(store.list()) == []
    store.put("a", b"x")
    store.check_writable()
    assert [info.key for info in store.list()] == ["a"]


def test_stores_pickle_by_url(store: Store) -> None:
    store.put("a", b"x")
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - a test's own bytes
    assert copy.url == store.url
    assert copy.get("a") == b"x"
    assert open_store(store.url).get("a") == b"x"


def test_check_writable_creates_no_folder(tmp_path: Path) -> None:
    open_store(tmp_path / "a" / "b").check_writable()
    assert list(tmp_path.iterdir()) == []


def test_home_and_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/raysweep").url == str(tmp_path / "raysweep")
    assert open_store(f"file://{tmp_path}/x").url == str(tmp_path / "x")
    monkeypatch.chdir(tmp_path)
    assert open_store("relative").url == str(tmp_path / "relative")


@pytest.mark.parametrize(
    "url",
    [
        *("s3://bucket/x", "s3a://bucket/x", "gs://bucket/x", "az://container/x", "azure://container/x"),
        *(
            "abfs://container@account.dfs.core.windows.net/x",
            "abfss://container@account.dfs.core.windows.net/x",
        ),
        "memory://x",
    ],
)
def test_places_that_are_not_folders(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    store = open_store(url)
    assert store.url == url
    assert store.local_path("key") is None


@pytest.mark.parametrize("path", ["", "foo://bucket/x", "http://host/x", "s3://", "az://container/x"])
def test_a_path_that_names_no_store(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StorageNotWritableError) as caught:
        open_store(path)
    assert caught.value.field == "storage_path"
    assert caught.value.fix
    assert "\n" not in str(caught.value)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageNotWritableError, match="not a folder"):
            open_store(path).check_writable()
        with pytest.raises(StorageError):
            open_store(path).put("a/b", b"x")
        assert open_store(path).get("a") is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_place_that_cannot_be_written() -> None:
    with pytest.raises(StorageNotWritableError) as caught:
        open_store("/proc/raysweep").check_writable()
    assert caught.value.field == "storage_path"
    with pytest.raises(StorageError):
        open_store("/proc/raysweep").put("a", b"x")


@pytest.mark.skipif(os.getuid() != 0, reason="needs to give up its rights")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    code = (
        "import os, sys\n"
        "from raysweep.errors import StorageNotWritableError\n"
        "from raysweep.storage.objects.local import LocalStore\n"
        "from raysweep.storage.objects.opening import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "os.setuid(65534)\n"
        "try:\n    store.check_writable()\n"
        "except StorageNotWritableError as error:\n    sys.exit(f'said: {error}')\n"
    )
    os.chmod(tmp_path, 0o755)
    for path in (folder, folder / "below"):
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "said: storage_path:" in done.stderr
    assert list(folder.iterdir()) == []


def test_s3_without_the_bucket(s3_url: str) -> None:
    with pytest.raises(StorageNotWritableError, match="bucket does not exist"):
        open_store("s3://no-such-bucket/x").check_writable()


def test_s3_out_of_reach(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageUnavailableError) as caught:
        open_store("s3://bucket/x").check_writable()
    assert "\n" not in str(caught.value)


def test_s3_endpoint_for_the_service_alone(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    open_store(f"{s3_url}/service").check_writable()


def test_temporary_files_are_never_listed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("a/b", b"x")
    (tmp_path / "a" / f"{TEMPORARY_MARK}1-2").write_bytes(b"half")
    assert [info.key for info in store.list()] == ["a/b"]


def test_deleting_prunes_empty_folders(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    store.put("a/b/c", b"x")
    store.put("a/d", b"x")
    store.delete("a/b/c")
    assert not (tmp_path / "root" / "a" / "b").exists()
    store.delete("a/d")
    assert (tmp_path / "root").is_dir()


def test_puts_and_pruning_deletes_do_not_trip_each_other(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    errors: list[BaseException] = []

    def churn(name: int) -> None:
        try:
            for _ in range(300):
                store.put(f"a/b/{name}", b"x")
                store.delete(f"a/b/{name}")
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=churn, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("how", ["put", "put_if_absent", "put_if_version"])
def test_a_write_outlasts_deletes_that_prune_its_folder_in_step_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Seen with four threads on a busy machine: twenty times in a row, another's delete came in between."""
    store = open_store(tmp_path)
    make_folders, made = local._make_folders, 0

    def pruned_at_once(folder: Path) -> tuple[Path, ...]:
        nonlocal made
        touched = make_folders(folder)
        if folder == tmp_path / "a" / "b":
            made += 1
            if made <= 40:
                folder.rmdir()
        return touched

    monkeypatch.setattr(local, "_make_folders", pruned_at_once)
    version = (None,) if how == "put_if_version" else ()
    getattr(store, how)("a/b/c", b"x", *version)
    assert store.get("a/b/c") == b"x"
    assert made > 40


def test_a_forked_child_is_refused_remote_storage_and_may_use_a_folder(
    store_url: Callable[[str], str], tmp_path: Path
) -> None:
    code = (
        "import os, sys\n"
        "from raysweep.errors import StorageError\n"
        "from raysweep.storage.objects.opening import open_store\n"
        "remote, local = open_store('memory://x'), open_store(sys.argv[1])\n"
        "remote.put('a', b'x'); local.put('a', b'x')\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    assert local.get('a') == b'x'; local.put('b', b'y')\n"
        "    try: remote.get('a')\n"
        "    except StorageError as error: os._exit(7 if 'fork' in str(error) else 8)\n"
        "    os._exit(9)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], check=False, timeout=60
    )
    assert done.returncode == 7
    assert (tmp_path / "b").read_bytes() == b"y"


def test_importing_raysweep_storage_leaves_obstore_out() -> None:
    code = (
        "import sys, raysweep.storage.objects.store, raysweep.storage.checkpoints.store\n"
        "import raysweep.runs.folder\n"
        "sys.exit(1 if 'obstore' in sys.modules else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_durable_put_syncs_the_file_and_each_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:  # what a power cut would show, only the calls can show here
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(str(tmp_path)))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    store = open_store(tmp_path / "store")
    store.put("a/b", b"x", durable=True)
    assert TEMPORARY_MARK in synced[0]
    assert sorted(synced[1:]) == ["", "/store", "/store/a"]
    synced.clear()
    assert store.put_if_absent("a/c", b"x", durable=True)
    assert TEMPORARY_MARK in synced[0]
    assert synced[1:] == ["/store/a"]
    synced.clear()
    assert not store.put_if_absent("a/c", b"x", durable=True)
    assert synced == ["/store/a"], "whoever gave the name may not have come to that"
    synced.clear()
    assert not store.put_if_absent("a/c", b"x")
    store.put("a/d", b"x")
    assert synced == []


def test_an_error_is_told_in_one_line_of_a_bounded_length() -> None:
    assert _first_line(OSError("first\nsecond")) == "first"
    assert _first_line(TimeoutError()) == "TimeoutError"
    assert len(_first_line(OSError("x" * 999))) == 243


def test_a_file_limit_that_a_trial_has_lowered_is_raised_for_the_next_try(tmp_path: Path) -> None:
    """A checkpoint that is stored while the trial may open no file is not tried for ten minutes in vain."""
    code = f"""
import resource
from pathlib import Path
from raysweep.errors import StorageUnavailableError
from raysweep.storage.objects.local import LocalStore

store = LocalStore(Path({str(tmp_path)!r}))
store.put("before", b"1")
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
try:
    store.put("a", b"1")
except StorageUnavailableError as error:
    print(error)
store.put("a", b"1")
print(store.get("a"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "open file limit" in done.stdout, done.stderr
    assert done.stdout.endswith("b'1'\n")
