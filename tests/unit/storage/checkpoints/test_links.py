"""Checkpoints that user code has stored itself: their address is kept, and what is there is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.errors import CheckpointDamagedError, SpecError, StorageNotWritableError
from raysweep.storage.checkpoints.links import absolute
from raysweep.storage.checkpoints.store import CheckpointStore, restore_uri
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

FILES = {"model.bin": b"m" * 300_000, "sub/shard-0": b"s", "empty": b""}


@pytest.fixture
def checkpoints(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(open_store(str(tmp_path / "sweeps")), "s-1", give_up_after_s=1.0, follows=True)


@pytest.fixture
def theirs(store: Store) -> Store:
    """What user code has stored, on each kind of storage."""
    for name, data in FILES.items():
        store.put(f"runs/7/{name}", data)
    store.put("runs/70/other", b"of another run")
    return store


def read(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_folder_is_kept_by_its_address_and_given_back(
    checkpoints: CheckpointStore, theirs: Store, tmp_path: Path
) -> None:
    saved = checkpoints.save_link("00000", 3, f"{theirs.url}/runs/7", {"report": 2})
    assert (saved.uri, saved.size_bytes) == (checkpoints.uri("00000", 3), 300_001)
    assert [info.key for info in checkpoints.store.list()] == ["s-1/checkpoints/00000/3.json"]
    seen: list[tuple[int, int]] = []
    manifest = restore_uri(
        saved.uri, tmp_path / "back", on_read=lambda *read: seen.append(read), follows=True
    )
    assert read(tmp_path / "back") == FILES
    assert (manifest.metadata["report"], manifest.link) == (2, f"{theirs.url}/runs/7")
    assert (sum(size for size, _ in seen), {total for _, total in seen}) == (300_001, {300_001})
    assert checkpoints.verify(saved) == manifest


def test_one_file_is_a_folder_with_it(checkpoints: CheckpointStore, theirs: Store, tmp_path: Path) -> None:
    saved = checkpoints.save_link("00000", 0, f"{theirs.url}/runs/7/model.bin")
    checkpoints.restore(saved, tmp_path / "back")
    assert read(tmp_path / "back") == {"model.bin": FILES["model.bin"]}


def test_one_that_lies_in_the_store_is_found_after_a_move(tmp_path: Path) -> None:
    store = open_store(tmp_path / "sweeps")
    store.put("models/7/weights", b"7")
    saved = CheckpointStore(store, "s-1").save_link("00000", 0, f"{store.url}/models/7")
    (tmp_path / "sweeps").rename(tmp_path / "moved")
    manifest = CheckpointStore(open_store(tmp_path / "moved"), "s-1").restore(
        saved.reference, tmp_path / "back"
    )
    assert manifest.link == f"{tmp_path}/moved/models/7"
    assert read(tmp_path / "back") == {"weights": b"7"}


def test_nothing_there_is_refused_and_keeps_nothing(checkpoints: CheckpointStore, theirs: Store) -> None:
    for address in ("runs/8", "runs/7/mod", "run"):
        with pytest.raises(CheckpointDamagedError, match="nothing is stored there"):
            checkpoints.save_link("00000", 0, f"{theirs.url}/{address}")
    with pytest.raises(StorageNotWritableError, match="unknown scheme 'ftp'"):
        checkpoints.save_link("00000", 0, "ftp://host/model")
    assert list(checkpoints.store.list()) == []


def test_what_is_gone_since_is_damage_that_names_its_address(
    checkpoints: CheckpointStore, theirs: Store, tmp_path: Path
) -> None:
    saved = checkpoints.save_link("00000", 0, f"{theirs.url}/runs/7")
    theirs.delete(*[info.key for info in theirs.list("runs/7")])
    for call in (lambda: checkpoints.restore(saved, tmp_path / "back"), lambda: checkpoints.verify(saved)):
        with pytest.raises(CheckpointDamagedError, match=r"runs/7: nothing is stored there any more"):
            call()
    assert not (tmp_path / "back").exists()
    assert checkpoints.exists(saved)


def test_deleting_it_leaves_what_is_there(
    checkpoints: CheckpointStore, theirs: Store, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "text").write_text("own")
    first = checkpoints.save("00000", 0, tmp_path / "own")
    saved = checkpoints.save_link("00000", 1, f"{theirs.url}/runs/7")
    later = checkpoints.save("00000", 2, tmp_path / "own", parent=first.manifest)
    checkpoints.delete(first, saved)
    assert checkpoints.numbers("00000") == (2,)
    assert checkpoints.verify(later).size_bytes == 3
    assert {info.key for info in theirs.list()} == {*(f"runs/7/{name}" for name in FILES), "runs/70/other"}


def test_a_checkpoint_of_a_sweep_is_that_sweeps_to_delete(
    checkpoints: CheckpointStore, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    saved = checkpoints.save("00000", 0, tmp_path / "own")
    with pytest.raises(SpecError, match=r"checkpoint_uri: .* of sweep 's-1', which may delete it"):
        checkpoints.save_link("00001", 0, saved.uri)


def test_a_local_address_has_its_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert absolute("model/7/") == str(tmp_path / "model/7")
    assert absolute("~/model") == str(tmp_path / "me/model")
    assert absolute("file:///data/x") == "/data/x"
    assert absolute("s3://bucket/x/") == "s3://bucket/x"
