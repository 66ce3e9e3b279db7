"""Checkpoints: whole or not at all, and nothing that changed is ever restored."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import socket
import tempfile
from pathlib import Path

import orjson
import pytest

from raysweep.errors import CheckpointDamagedError, SpecError, StorageError
from raysweep.storage.checkpoints.store import CheckpointRef, CheckpointStore, open_checkpoint, restore_uri
from raysweep.storage.objects.sealed import decode_sealed, encode_sealed
from raysweep.storage.objects.store import Store
from tests.sampling import sampled


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty" / "er").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(os.urandom(9_500_000))
    (folder / "nothing").write_bytes(b"")
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "sub" / "run.sh").chmod(0o755)
    for name in ("ünïcode name", "a#1", "100%", "line\nbreak", "back\\slash", "*?"):
        (folder / "sub" / "deep" / name).write_text(name)
    return folder


def _tree(folder: Path) -> dict[str, tuple[bytes | None, bool]]:
    return {
        str(path.relative_to(folder)): (None, False)
        if path.is_dir()
        else (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
    }


def test_round_trip(store: Store, source: Path, tmp_path: Path) -> None:
    checkpoints = CheckpointStore(store, "sweep")
    ref = checkpoints.save("t1", 3, source, {"metrics": {"auc": 0.5}})
    assert ref.uri == f"{store.url}/sweep/checkpoints/t1/3"
    assert ref.number == 3
    assert ref.files == 9
    assert ref.size_bytes == sum(len(data) for data, _ in _tree(source).values() if data)
    assert checkpoints.exists(ref)
    assert checkpoints.numbers("t1") == (3,)
    for index, restore in enumerate(
        (lambda t: checkpoints.restore(ref, t), lambda t: restore_uri(ref.uri, t))
    ):
        target = tmp_path / "targets" / str(index)
        manifest = restore(target)
        assert manifest.metadata == {"metrics": {"auc": 0.5}}
        assert _tree(target) == _tree(source)
    assert sorted(os.listdir(tmp_path / "targets")) == ["0", "1"]
    with open_checkpoint(ref.uri) as folder:
        assert _tree(folder) == _tree(source)
    assert not folder.exists()
    assert checkpoints.verify(ref).number == 3


def test_an_empty_directory_is_a_checkpoint(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ref = CheckpointStore(store, "sweep").save("t1", 1, tmp_path / "empty")
    (tmp_path / "target").mkdir()
    restore_uri(ref.uri, tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []


def test_delete_leaves_nothing_and_keeps_the_others(store: Store, source: Path) -> None:
    checkpoints = CheckpointStore(store, "sweep")
    refs = [checkpoints.save("t1", number, source / "sub") for number in (1, 11)]
    checkpoints.delete(refs[0])
    checkpoints.delete(refs[0])
    assert not checkpoints.exists(refs[0])
    assert checkpoints.numbers("t1") == (11,)
    checkpoints.verify(refs[1])
    with pytest.raises(CheckpointDamagedError, match="no such checkpoint"):
        checkpoints.restore(refs[0], source.parent / "target")
    checkpoints.delete(refs[1])
    assert list(store.list()) == []


def test_a_number_is_given_once(store: Store, source: Path, tmp_path: Path) -> None:
    checkpoints = CheckpointStore(store, "sweep")
    ref = checkpoints.save("t1", 1, source / "sub")
    before = sorted(info.key for info in store.list())
    with pytest.raises(StorageError, match="exists already"):
        checkpoints.save("t1", 1, source)
    assert sorted(info.key for info in store.list()) == before
    checkpoints.restore(ref, tmp_path / "target")
    assert _tree(tmp_path / "target") == _tree(source / "sub")


def test_uncommitted_files_are_invisible(store: Store, source: Path) -> None:
    checkpoints = CheckpointStore(store, "sweep")
    checkpoints.save("t1", 1, source / "sub")
    store.delete("sweep/checkpoints/t1/1.json")
    assert checkpoints.numbers("t1") == ()
    assert not checkpoints.exists(checkpoints.uri("t1", 1))
    ref = checkpoints.save("t1", 1, source / "sub")  # the retry of a save that died
    checkpoints.verify(ref)
    checkpoints.delete(ref)
    assert list(store.list()) == []


@pytest.mark.parametrize("name", ["sub/run.sh", "weights.bin"])
@pytest.mark.parametrize("change", ["flip", "cut", "add", "remove"])
def test_a_changed_object_is_never_restored(
    store: Store, source: Path, tmp_path: Path, change: str, name: str
) -> None:
    """`run.sh` is packed with other small files, `weights.bin` is cut into chunks."""
    checkpoints = CheckpointStore(store, "sweep")
    ref = checkpoints.save("t1", 1, source)
    manifest = checkpoints.read_manifest(ref)
    (entry,) = (entry for entry in manifest.files if entry.path == name)
    key = checkpoints.addresses.object_key(manifest, manifest.objects[entry.parts[-1].object])
    data = store.get(key)
    assert data is not None
    changed = {"flip": bytes([data[0] ^ 1]) + data[1:], "cut": data[:-1], "add": data + b"x"}
    if change == "remove":
        store.delete(key)
    else:
        store.put(key, changed[change])
    with pytest.raises(CheckpointDamagedError, match=re.escape(name)):
        checkpoints.restore(ref, tmp_path / "target" / "below")
    assert not (tmp_path / "target" / "below").exists()
    assert list((tmp_path / "target").iterdir()) == []
    with pytest.raises(CheckpointDamagedError, match=re.escape(name)):
        checkpoints.verify(ref)


def test_a_manifest_with_any_flipped_byte_is_refused(tmp_path: Path) -> None:
    from raysweep.storage.objects.opening import open_store

    store = open_store(tmp_path / "store")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "f").write_bytes(b"x")
    checkpoints = CheckpointStore(store, "sweep")
    ref = checkpoints.save("t1", 1, tmp_path / "source", {"a": 1})
    key = "sweep/checkpoints/t1/1.json"
    data = store.get(key)
    assert data is not None
    for index in range(len(data)):
        for changed in (data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :], data[:index]):
            store.put(key, changed)
            with pytest.raises(CheckpointDamagedError, match="manifest"):
                checkpoints.read_manifest(ref)


OUTSIDE = ("../evil", "/etc/evil", "a/../../evil", "", "a//b", ".")


@pytest.mark.parametrize("path", sampled(OUTSIDE, {"/etc/evil", "a/../../evil", ""}.__contains__))
@pytest.mark.parametrize("where", ["files", "empty_folders", "folder"])
def test_a_manifest_that_leads_outside_is_refused(
    store: Store, source: Path, tmp_path: Path, path: str, where: str
) -> None:
    checkpoints = CheckpointStore(store, "sweep")
    ref = checkpoints.save("t1", 1, source / "sub")
    key = "sweep/checkpoints/t1/1.json"
    body = decode_sealed(store.get(key) or b"")
    assert body is not None
    if where == "files":
        body["files"][0]["path"] = path
    else:
        body[where] = [path] if where == "empty_folders" else path
    store.put(key, encode_sealed(orjson.loads(orjson.dumps(body))))
    with pytest.raises(CheckpointDamagedError, match="names the path"):
        checkpoints.restore(ref, tmp_path / "inner" / "target")
    assert not (tmp_path / "inner").exists()
    assert not (tmp_path / "evil").exists()


def test_links_and_special_files_are_refused(store: Store, tmp_path: Path) -> None:
    checkpoints = CheckpointStore(store, "sweep")
    links = {
        "absolute link": __file__,
        "folder link": str(tmp_path),
        "dangling link": "nowhere",
        "link out": "..",
        "link out and in": "../{}/inner",
        "link to itself": ".",
    }
    for kind in (*links, "pipe", "socket"):
        folder = Path(tempfile.mkdtemp(dir="/tmp"))
        path = folder / "thing"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        else:
            (folder / "inner").touch()
            path.symlink_to(links[kind].format(folder.name))
        with pytest.raises(SpecError, match="symbolic link" if "link" in kind else "not a regular file"):
            checkpoints.save("t1", 1, folder)
        shutil.rmtree(folder)
    assert list(store.list()) == []


def test_links_that_stay_inside_are_kept_as_what_they_lead_to(store: Store, tmp_path: Path) -> None:
    """As Lightning's `save_last="link"` and the caches of model hubs have them."""
    folder = tmp_path / "checkpoint"
    (folder / "snapshots" / "1").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "abc").write_bytes(os.urandom(3_000_000))
    (folder / "snapshots" / "1" / "model").symlink_to("../../blobs/abc")
    (folder / "last.ckpt").symlink_to("snapshots/1/model")
    (folder / "newest").symlink_to("snapshots/1")
    checkpoints = CheckpointStore(store, "sweep")
    ref = checkpoints.save("t1", 1, folder)
    target = tmp_path / "restored"
    checkpoints.restore(ref, target)
    names = ["blobs/abc", "last.ckpt", "newest/model", "snapshots/1/model"]
    assert [entry.path for entry in ref.manifest.files] == names
    content = (folder / "blobs" / "abc").read_bytes()
    assert all((target / name).read_bytes() == content for name in names)
    assert ref.manifest.new_bytes < 1.01 * len(content), "the content is stored once"


def test_folders_that_link_to_each_other_are_refused(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    for name, other in (("a", "b"), ("b", "a")):
        (folder / name).mkdir(parents=True)
        (folder / name / "other").symlink_to(f"../{other}")
    with pytest.raises(SpecError, match="a folder that it lies in itself"):
        CheckpointStore(store, "sweep").save("t1", 1, folder)


def test_what_is_no_directory_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, problem in ((tmp_path / "file", "is not a directory"), (tmp_path / "none", "does not exist")):
        with pytest.raises(SpecError, match=problem):
            CheckpointStore(store, "sweep").save("t1", 1, path)


def test_an_undecodable_name_is_refused(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff")).write_bytes(b"")
    with pytest.raises(SpecError, match="UTF-8"):
        CheckpointStore(store, "sweep").save("t1", 1, folder)


def test_a_file_that_vanishes_fails_the_save_and_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(b"x")
    # The scan sees a file that is gone when its turn comes: only a patch makes that certain.
    monkeypatch.setattr(
        "raysweep.storage.checkpoints.store.scan_directory", lambda _: (("a", "b", "gone"), ())
    )
    with pytest.raises(SpecError, match="cannot be read"):
        CheckpointStore(store, "sweep").save("t1", 1, folder)
    assert list(store.list()) == []


def test_a_target_in_use_is_refused(store: Store, source: Path) -> None:
    checkpoints = CheckpointStore(store, "sweep")
    ref = checkpoints.save("t1", 1, source / "sub")
    before = _tree(source)
    with pytest.raises(StorageError, match="not empty"):
        checkpoints.restore(ref, source)
    with pytest.raises(StorageError):
        checkpoints.restore(ref, source / "nothing")
    assert _tree(source) == before


@pytest.mark.parametrize("uri", ["", "x", "/a/b/c", "/a/s/checkpoints/t/x", "s3://b/s/checkpoint/t/1"])
def test_what_is_no_uri_is_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not a checkpoint URI"):
        restore_uri(uri, tmp_path / "target")


def test_a_uri_of_another_sweep_is_refused(store: Store, source: Path) -> None:
    ref = CheckpointStore(store, "one").save("t1", 1, source / "sub")
    with pytest.raises(SpecError, match="not of sweep"):
        CheckpointStore(store, "two").delete(ref)


def test_they_go_to_workers(store: Store, source: Path) -> None:
    checkpoints = pickle.loads(pickle.dumps(CheckpointStore(store, "sweep")))  # noqa: S301 - a test's own bytes
    ref = checkpoints.save("t1", 1, source / "sub")
    assert pickle.loads(pickle.dumps(ref)) == ref  # noqa: S301 - a test's own bytes
    assert isinstance(ref, CheckpointRef)
    CheckpointStore.at(store.url, "sweep").verify(ref.uri)
