"""Checkpoint folders that a program writes, and which record each of them goes with.

A checkpoint goes with the last record of what it holds, so that a resumed program continues with the next
report. Where the folder's name ends with a number and records have a step, that is the last record whose step
is not above the number; else the last record before the checkpoint.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raysweep.programs.readers.base import Record, step_of

SETTLED_S: Final = 1.0
"""A folder in which nothing has changed for so long is complete."""
_NUMBER: Final = re.compile(r"(\d+)\D*$")


@dataclass(frozen=True, slots=True)
class Found:
    """A complete checkpoint; `number` ends its name."""

    path: Path
    number: int | None


@dataclass(slots=True)
class _Looked:
    facts: tuple[int, int, int]
    since: float


class CheckpointWatch:
    """Finds complete checkpoints below a folder, each once, in their order."""

    def __init__(self, folder: Path, pattern: str, marker: str, clock: Callable[[], float] = time.monotonic):
        self._folder = folder
        self._pattern = pattern
        self._marker = marker
        self._clock = clock
        self._looked: dict[Path, _Looked] = {}
        self._done = set(self._folders())

    def _folders(self) -> list[Path]:
        found = [path for path in self._folder.glob(self._pattern) if path.is_dir()]
        return sorted(found, key=lambda path: (_number(path) or 0, path.name))

    def look(self, *, has_ended_well: bool = False) -> list[Found]:
        """The checkpoints that are complete now and were not found before.

        `has_ended_well`: the program has, so that none is being written. One that was being written when the
        program died is never complete, unless its marker is there.
        """
        found: list[Found] = []
        for path in self._folders():
            if path not in self._done and (has_ended_well or self._is_complete(path)):
                self._done.add(path)
                self._looked.pop(path, None)
                found.append(Found(path, _number(path)))
        return found

    def _is_complete(self, path: Path) -> bool:
        if self._marker:
            return (path / self._marker).exists()
        try:
            facts = _facts(path)
        except OSError:  # it changes while it is looked at
            return False
        now = self._clock()
        looked = self._looked.get(path)
        if looked is None or looked.facts != facts:
            self._looked[path] = _Looked(facts, now)
            return False
        return facts[0] > 0 and now - looked.since >= SETTLED_S


def _facts(path: Path) -> tuple[int, int, int]:
    """How many files it has, their bytes, and when the last one changed."""
    stats = [each.stat() for each in path.rglob("*") if each.is_file()]
    return (
        len(stats),
        sum(each.st_size for each in stats),
        max((each.st_mtime_ns for each in stats), default=0),
    )


def _number(path: Path) -> int | None:
    match = _NUMBER.search(path.name)
    return int(match[1]) if match is not None else None


Send = Callable[[Record, Path | None], None]


class Pairing:
    """Holds the last record until it is known whether a checkpoint goes with it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: Record | None = None
        self._waiting: Found | None = None
        """A checkpoint that is newer than the held record."""

    def add(self, record: Record) -> None:
        """A record follows."""
        before, self._held = self._held, record
        if before is None:
            return
        step, waiting = step_of(record), self._waiting
        if waiting is None or waiting.number is None or step is None or step > waiting.number:
            self._waiting = None
            self._send(before, waiting.path if waiting is not None else None)
        else:
            self._send(before, None)  # the checkpoint holds this record, too
        self._settle()

    def found(self, checkpoint: Found) -> None:
        """A complete checkpoint follows; one that is still waiting is older, and not needed any more."""
        self._waiting = checkpoint
        self._settle()

    def _settle(self) -> None:
        """Send the held record where its checkpoint is there, and no later record can belong to it."""
        held, waiting = self._held, self._waiting
        if held is None or waiting is None:
            return
        step = step_of(held)
        if waiting.number is None or step is None or step == waiting.number or step > waiting.number:
            self._held = self._waiting = None
            self._send(held, waiting.path)

    def flush(self) -> None:
        """No record follows."""
        held, waiting = self._held, self._waiting
        self._held = self._waiting = None
        if held is not None:
            self._send(held, waiting.path if waiting is not None else None)
