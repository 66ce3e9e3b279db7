"""A folder as a tar file, made while it is sent: no more than a piece of it is in memory."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 1024 * 1024


def tar_pieces(folder: Path) -> Iterator[bytes]:
    """The pieces of a tar file of this folder, below its name. Raises: OSError."""
    with tarfile.open(fileobj=io.BytesIO(), mode="w") as archive:
        for path in (folder, *sorted(folder.rglob("*"))):
            member = archive.gettarinfo(path, str(path.relative_to(folder.parent)))
            yield member.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
            if member.isreg():
                yield from _content(path, member.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _content(path: Path, size_bytes: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
    yield bytes(-size_bytes % tarfile.BLOCKSIZE)
