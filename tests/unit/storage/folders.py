"""Folders of files that checkpoints are made of."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from raysweep.storage.checkpoints.uploads import SMALL_BYTES


def write(folder: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def read(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def content(number: int) -> dict[str, bytes]:
    """What checkpoint `number` holds: two thirds of it as the one before."""
    return {
        f"f{place}": random.Random(f"{place}-{(number + place) // 3}").randbytes(SMALL_BYTES + place)
        for place in range(3)
    } | {"n": b"%d" % number}
