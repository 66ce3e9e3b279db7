"""A checkpoint as plain files: written once, however many processes write it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raysweep.storage.checkpoints.exports import export_checkpoint
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.store import Store


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "weights").write_bytes(os.urandom(100_000))
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "sub" / "run.sh").chmod(0o755)
    return folder


def test_a_second_export_finds_what_is_there(store: Store, source: Path) -> None:
    checkpoints = CheckpointStore(store, "run")
    uri = checkpoints.save("00000", 1, source).uri
    for _ in range(2):
        export_checkpoint(checkpoints, uri, "run/model_000001")
    found = {info.key: store.get(info.key) for info in store.list("run/model_000001")}
    assert found == {
        "run/model_000001/weights": (source / "weights").read_bytes(),
        "run/model_000001/sub/run.sh": b"#!/bin/sh\n",
    }


def test_an_export_that_was_cut_off_is_completed_and_what_is_whole_stays(
    source: Path, tmp_path: Path
) -> None:
    checkpoints = CheckpointStore.at(str(tmp_path / "runs"), "run")
    uri = checkpoints.save("00000", 1, source).uri
    export_checkpoint(checkpoints, uri, "run/model")
    model = tmp_path / "runs" / "run" / "model"
    (model / "sub" / "run.sh").write_text("#!/bin")
    inode = (model / "weights").stat().st_ino
    export_checkpoint(checkpoints, uri, "run/model")
    assert (model / "sub" / "run.sh").read_text() == "#!/bin/sh\n"
    assert os.access(model / "sub" / "run.sh", os.X_OK)
    assert (model / "weights").stat().st_ino == inode
    (model / "weights").unlink()
    export_checkpoint(checkpoints, uri, "run/model")
    assert (model / "weights").read_bytes() == (source / "weights").read_bytes()


def test_processes_that_export_at_once_both_succeed(source: Path, tmp_path: Path) -> None:
    checkpoints = CheckpointStore.at(str(tmp_path / "runs"), "run")
    uri = checkpoints.save("00000", 1, source).uri
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: export_checkpoint(checkpoints, uri, "run/model"), range(8)))
    assert (tmp_path / "runs" / "run" / "model" / "weights").read_bytes() == (source / "weights").read_bytes()
