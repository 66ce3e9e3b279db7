"""A registry that notes in a file, one line for each call, which champion it got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from raysweep.hooks.model_registry import ModelRegistry, Release


class Shelf(ModelRegistry):
    """The last line is the champion."""

    class Options(BaseModel):
        """Where the file is."""

        path: str

    def __init__(self, options: Options, setup: Any) -> None:
        self._path = Path(options.path)

    def make_champion(self, release: Release) -> str:
        """Note it."""
        with self._path.open("a") as file:
            file.write(f"{release.key} {release.source}\n")
        return f"v-{release.key}"


def shelved(path: Path) -> list[str]:
    """The keys of the champions that the registry got, in order."""
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
