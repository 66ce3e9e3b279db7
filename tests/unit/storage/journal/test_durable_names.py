"""A name is durable once its folder, and what that hangs on, was synced: also where that failed at first."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR

import pytest

from raysweep.errors import SegmentExistsError, StorageUnavailableError
from raysweep.storage.journal.journal import append_once
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.objects.opening import open_store

DATA = b"a segment"


class Disk:
    """Counts the folders that are synced, and refuses to sync those in `failing`."""

    def __init__(self) -> None:
        self.synced: set[int] = set()
        self.failing: set[int] = set()
        self._sync = os.fsync

    def sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if S_ISDIR(status.st_mode):
            if status.st_ino in self.failing:
                raise OSError(errno.EIO, "Input/output error")
            self.synced.add(status.st_ino)
        self._sync(descriptor)

    def has(self, *folders: Path) -> bool:
        return all(os.stat(folder).st_ino in self.synced for folder in folders)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    # No file system at hand fails to sync a folder on request.
    monkeypatch.setattr(os, "fsync", disk.sync)
    return disk


def folders_of(root: Path) -> tuple[Path, ...]:
    """The journal's folder and all above it up to the one that was there before."""
    return root / "s" / "journal", root / "s", root, root.parent


def test_a_name_whose_folder_was_not_synced_is_synced_before_the_retry_counts(
    tmp_path: Path, disk: Disk
) -> None:
    root = tmp_path / "new" / "store"
    (root / "s" / "journal").mkdir(parents=True)
    backend = ObjectJournal(open_store(str(root)), "s/journal")
    disk.failing.add(os.stat(root / "s" / "journal").st_ino)
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            append_once(backend, 1, DATA)
        assert (root / "s" / "journal" / "000000000001.jsonl").read_bytes() == DATA
    disk.failing.clear()
    append_once(backend, 1, DATA)
    assert disk.has(root / "s" / "journal", root / "s", root)
    with pytest.raises(SegmentExistsError):
        append_once(backend, 1, b"another")


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_folders_that_were_made_by_the_put_that_failed_are_synced_too(
    tmp_path: Path, disk: Disk, depth: int
) -> None:
    root = tmp_path / "store"
    backend = ObjectJournal(open_store(str(root)), "s/journal")

    def refuse(descriptor: int) -> None:
        if folders_of(root)[depth].exists():
            disk.failing.add(os.stat(folders_of(root)[depth]).st_ino)
        sync(descriptor)

    sync: Callable[[int], None] = disk.sync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StorageUnavailableError):
            append_once(backend, 1, DATA)
    disk.failing.clear()
    disk.synced.clear()
    append_once(backend, 1, DATA)
    assert disk.has(*folders_of(root))


def test_folders_that_another_process_made_and_did_not_sync_are_synced_once(
    tmp_path: Path, disk: Disk
) -> None:
    """It was killed right then; a power cut must not take what is written below them later."""
    (tmp_path / "store" / "s" / "journal").mkdir(parents=True)
    backend = ObjectJournal(open_store(str(tmp_path / "store")), "s/journal")
    append_once(backend, 1, DATA)
    assert disk.has(*folders_of(tmp_path / "store")[:3])
    disk.synced.clear()
    append_once(backend, 2, DATA)
    assert disk.synced == {os.stat(tmp_path / "store" / "s" / "journal").st_ino}
