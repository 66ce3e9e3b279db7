"""System calls that each attempt makes, with the GIL held.

Python's own functions release the GIL around these calls. The link's threads then take it, and the attempt
waits: measured, that costs ten times as much as the call. None of these calls blocks.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final, NamedTuple

_LIBC: Final = ctypes.PyDLL(None)
_SIGINFO: Final = ctypes.create_string_buffer(256)  # larger than a siginfo_t
_ANY_CHILD: Final = (int(os.P_ALL), 0, _SIGINFO, os.WEXITED | os.WNOHANG | os.WNOWAIT)
_waitid: Final = _LIBC.waitid
_PATH_MAX: Final = 4096
_PATH: Final = ctypes.create_string_buffer(_PATH_MAX)
_getcwd: Final = _LIBC.getcwd
_getcwd.restype = ctypes.c_char_p
_STATX: Final = ctypes.create_string_buffer(256)  # a struct statx, whose layout is the same on all machines
_AT_EMPTY_PATH: Final = 0x1000
_STATX_INO_SIZE: Final = 0x100 | 0x200
_INO_SIZE: Final = struct.Struct("=32xQQ")
_DEVICE: Final = struct.Struct("=136xQ")
# Linux: the bytes of a TCP socket that have not been sent once (linux/sockios.h).
_SIOCOUTQNSD: Final = 0x894B
_ioctl: Final = ctypes.PyDLL(None, use_errno=True).ioctl


class FileFacts(NamedTuple):
    """The file that a descriptor leads to, and its size in bytes."""

    inode: int
    device: int
    size_bytes: int


def has_children() -> bool:
    """True if this process has a child, a dead one included."""
    return bool(_waitid(*_ANY_CHILD) == 0)


def working_directory() -> bytes | None:
    """The working directory; None if it was removed."""
    found: bytes | None = _getcwd(_PATH, _PATH_MAX)
    return found


def file_of(descriptor: int) -> FileFacts | None:
    """The file that a descriptor leads to; None if the descriptor is closed."""
    if _LIBC.statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_INO_SIZE, _STATX):
        return None
    inode, size_bytes = _INO_SIZE.unpack_from(_STATX)
    return FileFacts(inode, _DEVICE.unpack_from(_STATX)[0], size_bytes)


def unsent_bytes(descriptor: int) -> int:
    """The bytes of a TCP socket that the kernel has not sent once (Linux).

    Raises:
        OSError: The descriptor is closed, or is no socket.
    """
    unsent = ctypes.c_int()  # of this call: several links of a process may ask at once
    if _ioctl(descriptor, _SIOCOUTQNSD, ctypes.byref(unsent)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return unsent.value
