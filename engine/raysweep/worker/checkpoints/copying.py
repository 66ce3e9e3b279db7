"""Copying one file: shared blocks where the file system has them, else within the kernel, else by hand."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from raysweep.storage.checkpoints.directory import unreadable

_FICLONE: Final = 0x40049409
# The kernel is asked for so much at a time: between two of these the copy can be called off.
_STEP_BYTES: Final = 64 * 2**20
_BUFFER_BYTES: Final = 2**20
# What says that this way does not work between these two files, and nothing of the disk.
_UNSUITED: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM, errno.ETXTBSY,
     errno.EIO}
)  # fmt: skip


def copy_file(source: Path, target: Path, go_on: Callable[[], None] = lambda: None) -> None:
    """Copy a file's content, and whether it is executable, to a new file. `go_on` is called now and then.

    Raises: SpecError: the source cannot be read. OSError: the target cannot be written.
    """
    try:
        read_from = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(source, error.strerror or str(error)) from error
    try:
        mode = 0o777 if os.fstat(read_from).st_mode & 0o111 else 0o666
        write_to = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            if not _clone(read_from, write_to):
                _copy(source, read_from, write_to, go_on)
        finally:
            os.close(write_to)
    finally:
        os.close(read_from)


def _clone(read_from: int, write_to: int) -> bool:
    """Share the blocks, whatever their number: btrfs, XFS and others, within one file system."""
    try:
        fcntl.ioctl(write_to, _FICLONE, read_from)
    except OSError as error:
        if error.errno not in _UNSUITED:
            raise
        return False
    return True


def _copy(source: Path, read_from: int, write_to: int, go_on: Callable[[], None]) -> None:
    offset = 0
    try:
        while copied := _copy_in_kernel(read_from, write_to, offset):
            offset += copied
            go_on()
    except OSError as error:
        if error.errno not in _UNSUITED:
            raise
    # What follows is empty, unless the kernel cannot do it, or does nothing without saying so (as in /proc).
    os.lseek(write_to, offset, os.SEEK_SET)
    while data := _read(source, read_from, offset):
        view = memoryview(data)
        while view:
            view = view[os.write(write_to, view) :]
        offset += len(data)
        go_on()


def _copy_in_kernel(read_from: int, write_to: int, offset: int) -> int:
    if not hasattr(os, "copy_file_range"):
        return 0
    return os.copy_file_range(read_from, write_to, _STEP_BYTES, offset, offset)


def _read(source: Path, read_from: int, offset: int) -> bytes:
    try:
        return os.pread(read_from, _BUFFER_BYTES, offset)
    except OSError as error:
        raise unreadable(source, error.strerror or str(error)) from error
