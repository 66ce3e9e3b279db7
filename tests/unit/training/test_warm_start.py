"""Where a training run may start from."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from raysweep.errors import SpecError
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.training.warm_start import check_warm_start, open_warm_start
from raysweep.training.worker_session import get_warm_start, set_warm_start


def test_a_sweeps_checkpoint_is_verified_and_copied(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("1 2 3")
    uri = CheckpointStore.at(str(tmp_path / "store"), "s-1").save("00001", 4, tmp_path / "model").uri
    check_warm_start(uri)
    with open_warm_start(uri) as folder:
        assert (folder / "weights").read_text() == "1 2 3"
        assert tmp_path not in folder.parents
    with pytest.raises(SpecError, match="no checkpoint"):
        check_warm_start(uri.replace("00001", "00002"))


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    check_warm_start(f"file://{tmp_path}")
    with open_warm_start(str(tmp_path)) as folder:
        assert folder == tmp_path
    with pytest.raises(SpecError, match="no checkpoint"):
        check_warm_start(str(tmp_path / "nothing"))


def test_a_remote_folder_is_copied() -> None:
    url = f"memory://{uuid.uuid4().hex}/model"
    with pytest.raises(SpecError, match="no checkpoint"):
        check_warm_start(url)
    open_store(url).put("deep/weights", b"1 2 3")
    check_warm_start(url)
    with open_warm_start(url) as folder:
        assert (folder / "deep" / "weights").read_bytes() == b"1 2 3"


def test_without_one_there_is_none(tmp_path: Path) -> None:
    assert get_warm_start() is None
    set_warm_start(str(tmp_path))
    try:
        begin = get_warm_start()
        assert begin is not None
        with begin as folder:
            assert folder == tmp_path
    finally:
        set_warm_start(None)
