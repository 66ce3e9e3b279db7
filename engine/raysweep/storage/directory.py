"""What a checkpoint directory holds, and whether it can be kept."""

from __future__ import annotations

import os
from pathlib import Path

from raysweep.errors import SpecError


def scan_directory(directory: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(paths of the files, paths of the empty folders), relative and sorted.

    Raises: SpecError for what is no directory, and for links, special files and undecodable names in it.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise SpecError("checkpoint", f"{directory} {what}", "report the path of a directory")
    files: list[str] = []
    empty_folders: list[str] = []
    _scan(directory, "", files, empty_folders)
    return tuple(sorted(files)), tuple(sorted(empty_folders))


def read_piece(path: Path, offset: int, size_bytes: int) -> bytes:
    """So many bytes of a file of a checkpoint directory.

    Raises: SpecError if they cannot be read (any more).
    """
    try:
        with open(path, "rb", buffering=0) as file:
            pieces = []
            while size_bytes and (piece := os.pread(file.fileno(), size_bytes, offset)):
                pieces.append(piece)
                offset, size_bytes = offset + len(piece), size_bytes - len(piece)
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    if size_bytes:
        raise unreadable(path, "it has become shorter")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def unreadable(path: Path, why: str) -> SpecError:
    """The error for a file that was there when the directory was looked at."""
    return SpecError(
        "checkpoint",
        f"{path} cannot be read ({why})",
        "leave the directory as it is until the checkpoint is saved",
    )


def _scan(folder: Path, prefix: str, files: list[str], empty_folders: list[str]) -> None:
    with os.scandir(folder) as entries:
        found = list(entries)
    if not found and prefix:
        empty_folders.append(prefix.rstrip("/"))
    for entry in found:
        name = f"{prefix}{entry.name}"
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SpecError(
                "checkpoint", f"{folder} holds a file name that is not UTF-8", "rename it"
            ) from None
        if entry.is_symlink():
            raise SpecError("checkpoint", f"{entry.path} is a symbolic link", "put the file itself there")
        if entry.is_dir(follow_symlinks=False):
            _scan(Path(entry.path), f"{name}/", files, empty_folders)
        elif entry.is_file(follow_symlinks=False):
            files.append(name)
        else:
            raise SpecError("checkpoint", f"{entry.path} is no regular file", "leave pipes and sockets out")
