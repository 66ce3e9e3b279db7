"""The contents of a checkpoint directory, and the reasons why it cannot be kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from raysweep.errors import SpecError


def scan_directory(directory: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(paths of the files, paths of the empty folders), relative and sorted.

    A relative symbolic link that stays in the directory counts as what it leads to, a file or a folder: it is
    restored as that. Where its content is stored once already, it takes no more room.

    Raises: SpecError for what is not a directory, and for other links, special files and undecodable names.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise SpecError("checkpoint", f"{directory} {what}", "report the path of a directory")
    files: list[str] = []
    empty_folders: list[str] = []
    _Scan(files, empty_folders).scan(os.fspath(directory), "", ())
    return tuple(sorted(files)), tuple(sorted(empty_folders))


def read_piece(path: Path, offset: int, into: memoryview) -> None:
    """Fill a buffer with the bytes of a file of a checkpoint directory, from `offset` on.

    Raises: SpecError if they cannot be read (any more).
    """
    try:
        with open(path, "rb", buffering=0) as file:
            while into and (size_bytes := os.preadv(file.fileno(), [into], offset)):
                into, offset = into[size_bytes:], offset + size_bytes
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    if into:
        raise unreadable(path, "it has become shorter")


def unreadable(path: Path, why: str) -> SpecError:
    """The error for a file that was there when the directory was looked at."""
    return SpecError(
        "checkpoint",
        f"{path} cannot be read ({why})",
        "leave the directory as it is until the checkpoint is saved",
    )


class _Scan(NamedTuple):
    files: list[str]
    empty_folders: list[str]

    def scan(self, folder: str, prefix: str, above: tuple[str, ...]) -> None:
        """Collect the contents of a folder. `above`: the folders around it."""
        with os.scandir(folder) as entries:
            found = list(entries)
        if not found and prefix:
            self.empty_folders.append(prefix.rstrip("/"))
        above = (*above, folder)
        real: list[Path] = []
        for entry in found:
            name = f"{prefix}{entry.name}"
            try:
                name.encode()
            except UnicodeEncodeError:
                problem = f"{folder} holds a file name that is not UTF-8"
                raise SpecError("checkpoint", problem, "rename it") from None
            if entry.is_symlink():
                real = real or [Path(os.path.realpath(each)) for each in above]
                self._check_link(entry.path, real)
            if entry.is_dir():
                self.scan(entry.path, f"{name}/", above)
            elif entry.is_file():
                self.files.append(name)
            else:
                raise SpecError(
                    "checkpoint", f"{entry.path} is not a regular file", "leave pipes and sockets out"
                )

    def _check_link(self, path: str, real: list[Path]) -> None:
        """`real`: the real paths of the folders around it, the checkpoint's first.

        Raises: SpecError: it would not be the same in the folder's copy, or does not end.
        """
        target, leads_to = os.readlink(path), Path(os.path.realpath(path))
        problem, depth = "", len(real[-1].relative_to(real[0]).parts)
        if _leaves(target, depth) or not leads_to.is_relative_to(real[0]):
            problem = "which is not a path inside of the checkpoint"
        elif not os.path.exists(path):
            problem = "which does not exist"
        elif leads_to in real:
            problem = "a folder that it lies in itself"
        if problem:
            raise SpecError(
                "checkpoint",
                f"{path} is a symbolic link to {target}, {problem}",
                "link to a file of the checkpoint by a relative path, or put the file itself there",
            )


def _leaves(target: str, depth: int) -> bool:
    """True if a path from a folder so deep leaves the checkpoint, be it to come back by its name of now."""
    for part in target.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return os.path.isabs(target)
