"""Copies on a file system with shared blocks (btrfs, XFS), where there is one.

Opt-in: `RAYSWEEP_TEST_SHARED_BLOCKS` names a folder on such a file system, for example

    truncate -s 1G image && mkfs.btrfs image && mount -o loop image /mnt/shared
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.worker.checkpoints.copying import copy_file

VARIABLE = "RAYSWEEP_TEST_SHARED_BLOCKS"
SIZE_BYTES = 64 * 2**20

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no folder")


@pytest.fixture
def shared() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=os.environ[VARIABLE]))
    yield folder
    shutil.rmtree(folder)


def blocks_of(path: Path) -> list[tuple[int, int, int]]:
    """(where in the file, where on the disk, length) of each extent, as FIEMAP says."""
    head, extent, most = struct.Struct("=QQIIII"), struct.Struct("=QQQQQIIII"), 512
    asked = bytearray(head.pack(0, 2**63, 1, 0, most, 0) + bytes(extent.size * most))
    with path.open("rb") as file:
        fcntl.ioctl(file, 0xC020660B, asked)
    count = head.unpack_from(asked)[3]
    return [extent.unpack_from(asked, head.size + extent.size * number)[:3] for number in range(count)]


def test_a_copy_takes_no_blocks_and_is_a_copy_all_the_same(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "copy_file_range")  # it shares blocks too, on some kernels
    source, target = shared / "source", shared / "target"
    source.write_bytes(os.urandom(SIZE_BYTES))
    copy_file(source, target)
    assert blocks_of(source)
    assert blocks_of(target) == blocks_of(source)
    with source.open("r+b") as file:  # in place, as trials do
        before = file.read(1000)
        file.seek(0)
        file.write(bytes(1000))
    with target.open("rb") as file:
        assert file.read(1000) == before
    assert blocks_of(target) != blocks_of(source)


def test_into_another_file_system_the_bytes_are_copied(shared: Path, tmp_path: Path) -> None:
    source, target = shared / "source", tmp_path / "target"
    source.write_bytes(os.urandom(2**20))
    copy_file(source, target)
    assert target.read_bytes() == source.read_bytes()
