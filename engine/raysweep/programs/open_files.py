"""The files that processes have open, as Linux shows them in `/proc`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def open_files(pid: int) -> Iterator[tuple[str, str]]:
    """Each descriptor of a process, and what it is of: a path, or such as `socket:[123]`."""
    with suppress(OSError):  # it has ended, or is of another user
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield descriptor, os.readlink(f"/proc/{pid}/fd/{descriptor}")


def is_written(folder: Path, pids: Iterable[int]) -> bool:
    """True if one of these processes has a file of a folder open to write to it."""
    below = os.path.join(os.path.realpath(folder), "")
    return any(
        path.startswith(below) and _is_for_writing(pid, descriptor)
        for pid in pids
        for descriptor, path in open_files(pid)
    )


def _is_for_writing(pid: int, descriptor: str) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/fdinfo/{descriptor}") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name == "flags":
                return int(value, 8) & os.O_ACCMODE != os.O_RDONLY
    return False
