"""What a checkpoint directory holds, and whether it can be kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raysweep.errors import SpecError
from raysweep.storage.store import CHUNK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a checkpoint."""

    path: str
    """Relative to the directory, `/`-separated."""
    size_bytes: int
    blake2b: str
    """Hex, 20 bytes."""
    executable: bool = False


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


def read_chunks(path: Path) -> Iterator[bytes]:
    """A file of a checkpoint directory, piece by piece.

    Raises: SpecError if it cannot be read (any more).
    """
    try:
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise SpecError(
            "checkpoint",
            f"{path} cannot be read ({error.strerror})",
            "leave the directory as it is until the checkpoint is saved",
        ) from error


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
