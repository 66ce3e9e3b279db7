"""A local storage path below which somebody laid symbolic links: none of them is read out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import OutsideStorageError
from raysweep.storage.objects.local import LocalStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "private" / "deep").mkdir(parents=True)
    (tmp_path / "private" / "key").write_text("a secret")
    (tmp_path / "private" / "deep" / "key").write_text("a secret")
    (tmp_path / "store" / "own").mkdir(parents=True)
    (tmp_path / "store" / "own" / "file").write_text("own")
    return tmp_path / "store"


CALLS: list[Callable[[LocalStore, str], Any]] = [
    lambda store, key: store.get(key),
    lambda store, key: list(store.get_chunks(key) or ()),
    lambda store, key: store.head(key),
    lambda store, key: store.exists(key),
    lambda store, key: store.get_versioned(key),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("place", "target"), [("link", "key"), ("folder", ""), ("own/up", "")])
def test_a_link_that_leads_out_is_not_read(
    root: Path, place: str, target: str, call: Callable[[LocalStore, str], Any]
) -> None:
    (root / place).symlink_to(root.parent / "private" / target)
    key = place if target else f"{place}/key"
    with pytest.raises(OutsideStorageError, match=r"leads to .*/private/key by a symbolic link"):
        call(LocalStore(root), key)


def test_folders_behind_such_a_link_are_not_listed(root: Path) -> None:
    (root / "run").symlink_to(root.parent / "private")
    (root / "near").symlink_to("../storehouse")
    (root.parent / "storehouse").mkdir()
    store = LocalStore(root)
    for name in ("run", "run/deep", "near"):
        with pytest.raises(OutsideStorageError):
            list(store.list(name))
        with pytest.raises(OutsideStorageError):
            store.list_folders(name)
    (root / "big").symlink_to(root.parent / "private" / "key")
    sizes = {info.key: info.size_bytes for info in store.list()}
    assert set(sizes) == {"own/file", "run", "near", "big"}
    assert sizes["big"] == len(os.readlink(root / "big")), "of the link itself"
    store.delete("big", "run")
    assert (root.parent / "private" / "key").exists()


def test_links_within_and_above_the_storage_path_are_as_before(root: Path) -> None:
    (root / "again").symlink_to("own")
    (root / "same").symlink_to(root / "own" / "file")
    (root.parent / "other-name").symlink_to(root)
    for store in (LocalStore(root), LocalStore(root.parent / "other-name")):
        assert store.get("again/file") == store.get("same") == b"own"
        assert [info.key for info in store.list("again")] == ["again/file"]
        assert store.list_folders() == ("again", "own")
        found = store.head("same")
        assert found is not None
        assert found.size_bytes == 3


def test_a_storage_path_may_appear_move_and_come_back_as_a_link(root: Path) -> None:
    store = LocalStore(root)
    assert store.get("own/file") == b"own"
    root.rename(root.parent / "moved")
    assert store.get("own/file") is None
    assert list(store.list()) == []
    root.symlink_to("moved")
    assert store.get("own/file") == b"own"


def test_a_pipe_holds_up_no_reader(root: Path) -> None:
    os.mkfifo(root / "pipe")
    store = LocalStore(root)
    assert store.get("pipe") == b""
    assert store.head("pipe") is None
