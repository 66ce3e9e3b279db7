"""A registry of models in a file, by the contract: a release is registered once, however often asked."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from raysweep.hooks.model_registry import ModelRegistry, Release


class Registry(ModelRegistry):
    """Each line is a release that became the champion, with the sweep that found it."""

    class Options(BaseModel):
        """Where the file is."""

        file: str

    def __init__(self, options: Options, setup: Any) -> None:
        self._file = Path(options.file)

    def make_champion(self, release: Release) -> str:
        """Append the release, unless it is the newest already."""
        with self._file.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            lines = [json.loads(line) for line in file]
            if not lines or lines[-1]["id"] != release.id:
                lines.append({"id": release.id, "sweep_id": release.sweep_id, "source": release.source})
                file.write(f"{json.dumps(lines[-1])}\n")
        return str(len(lines))


def registered(file: Path) -> list[str]:
    """The sweeps of the champions that it has, the newest last."""
    return [json.loads(line)["sweep_id"] for line in file.read_text().splitlines()] if file.exists() else []
