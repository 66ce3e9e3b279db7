"""A file that a program appends to, read on from where it was; one that was written anew is noticed.

It is known by its inode, by its size, and by what stands where the last look ended. The file stays open: what
a program still writes to one that was renamed or deleted is read, too.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_KNOWN_BYTES: Final = 256
"""The bytes before the offset that are looked at again, and those at the file's beginning."""


class GrowingFile:
    """Bytes of one path, in pieces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._offset = 0
        self._head = self._tail = b""
        self.problem = ""
        """The reason why the file, if it is there, cannot be read."""

    def skip(self) -> None:
        """Skip what stands in the file now."""
        if self._open():
            size = os.fstat(self._fd).st_size
            begin = max(size - _KNOWN_BYTES, 0)
            self._head = os.pread(self._fd, min(size, _KNOWN_BYTES), 0)
            self._offset, self._tail = size, os.pread(self._fd, size - begin, begin)

    def read(self) -> list[tuple[bytes, bool]]:
        """The new pieces, each with True if it begins a file that was written anew."""
        found: list[tuple[bytes, bool]] = []
        if self._fd >= 0 and not self._is_same_inode():
            found.append(self._read_on())
            known = self._offset, self._head, self._tail
            self.close()
            if self._open():
                self._offset, self._head, self._tail = known
        if self._fd >= 0 or self._open():
            found.append(self._read_on())
        return [(data, is_anew) for data, is_anew in found if data or is_anew]

    def close(self) -> None:
        """Read no further."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _open(self) -> bool:
        try:
            # A pipe would otherwise wait for its writer.
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.problem = error.strerror or str(error)
            return False
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            self.problem = "it is no regular file"
            return False
        self._fd, self.problem = fd, ""
        return True

    def _is_same_inode(self) -> bool:
        """True if the path leads to the open file; also where it leads to nothing just now."""
        with suppress(OSError):
            now, then = os.stat(self._path), os.fstat(self._fd)
            return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
        return True

    def _read_on(self) -> tuple[bytes, bool]:
        """Read from the offset to the end; from the beginning, where what stood before it is not there."""
        size = os.fstat(self._fd).st_size
        is_anew = size < self._offset or not self._is_known()
        if is_anew:
            self._offset, self._head, self._tail = 0, b"", b""
        data = os.pread(self._fd, size - self._offset, self._offset)
        self._offset += len(data)
        self._head = (self._head + data[:_KNOWN_BYTES])[:_KNOWN_BYTES]
        self._tail = (self._tail + data[-_KNOWN_BYTES:])[-_KNOWN_BYTES:]
        return data, is_anew

    def _is_known(self) -> bool:
        tail = os.pread(self._fd, len(self._tail), self._offset - len(self._tail))
        return tail == self._tail and os.pread(self._fd, len(self._head), 0) == self._head
