"""Checkpoint folders that a program writes, and which record each of them goes with.

A folder with its marker is complete each time that the marker is written. Without a marker that can only be
guessed: a folder is taken for complete when nothing in it has changed for a while and no process of the
program has one of its files open for writing. It is looked at again: one that changes later counts once
more, and one that only got more files was half written before, which is said, and teaches to wait longer.

A checkpoint goes with the last record of what it holds, so that a resumed program continues with the next
report. Where the folder's name ends with a number and records have a step, that is the last record whose step
is not above the number; else the last record before the checkpoint.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raysweep.programs.readers.base import Record, step_of
from raysweep.programs.steps import STEP_FILE

SETTLED_S: Final = 1.0
"""A folder in which nothing has changed for so long is complete."""
MAX_SETTLED_S: Final = 10.0
"""The longest time that is waited for more files of a program that pauses while it writes."""
OPEN_S: Final = 30.0
"""As `SETTLED_S`, while one of its files is open for writing."""
LATER: Final = 0.05
"""A stored folder that has been the same for a time is looked at again after this part of that time, so that
the number of looks grows with the logarithm of the time."""
_NUMBER: Final = re.compile(r"(\d+)\D*$")
_GREW: Final = "a folder that was stored as it seemed complete got more files later"
_CHANGING: Final = "a folder that was changing when the program failed is not stored"
_MARKER: Final = "name the file that is written last as program.checkpoints.marker"

Files = frozenset[tuple[str, int, int, int]]
"""By path: size, time of the last change and inode."""


@dataclass(frozen=True, slots=True)
class Found:
    """A complete checkpoint; `number` ends its name."""

    path: Path
    number: int | None
    grew: bool = False
    """True if it was found before, with a part of its files."""


@dataclass(slots=True)
class _Folder:
    files: Files
    since: float
    """The time at which it was first seen with these files."""
    due: float = 0.0
    """The time at which it is looked at again."""
    found: Files | None = None
    """The files that it had when it was found; None: it was not found yet."""
    pause_s: float = 0.0
    """The time without a change, before it changed after it was found."""


class CheckpointWatch:
    """Finds complete checkpoints below a folder in their order, and again when they have changed.

    `is_open`: whether the program has a file of a folder open for writing. `say` receives doubts.
    """

    def __init__(
        self,
        folder: Path,
        pattern: str,
        marker: str,
        *,
        is_open: Callable[[Path], bool] = lambda path: False,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._pattern = pattern
        self._marker = marker
        self._is_open = is_open
        self._say = say
        self._clock = clock
        self._settled_s = SETTLED_S
        self._last: Path | None = None
        self._seen: dict[Path, _Folder] = {}
        for path in self._folders():  # those of earlier attempts
            files = self._files(path)
            self._seen[path] = _Folder(files, clock(), found=files)

    def _folders(self) -> list[Path]:
        found = [path for path in self._folder.glob(self._pattern) if path.is_dir()]
        return sorted(found, key=lambda path: (number_of(path) or 0, path.name))

    def look(self, *, has_ended_well: bool | None = None) -> list[Found]:
        """The checkpoints that are complete now and were not found as they are.

        `has_ended_well`: whether the program has ended with exit code 0, so that none is being written; None
        while it runs. One that was being written when the program failed is never complete, unless its
        marker is there.
        """
        now = self._clock()
        found: list[Found] = []
        for path in self._folders():
            seen = self._seen.setdefault(path, _Folder(frozenset(), now))
            if has_ended_well is None and now < seen.due:
                continue
            self._look_at(path, seen, now)
            if seen.files == seen.found:
                continue
            if self._is_complete(path, seen, now) or (has_ended_well and (seen.files or seen.found is None)):
                found += self._find(path, seen)
            elif has_ended_well is False and seen.files:
                self._say(f"{_CHANGING}: {_MARKER}")
        return found

    def _find(self, path: Path, seen: _Folder) -> list[Found]:
        before, seen.found = seen.found, seen.files
        grew = not self._marker and before is not None and before < seen.files
        if grew:
            self._settled_s = min(max(self._settled_s, 2 * seen.pause_s), MAX_SETTLED_S)
            self._say(f"{_GREW}: {_MARKER}")
            if path != self._last:  # a newer one is stored, from which a retry begins
                return []
        self._last = path
        return [Found(path, number_of(path), grew)]

    def _look_at(self, path: Path, seen: _Folder, now: float) -> None:
        files = self._files(path)
        if files != seen.files:
            if seen.found == seen.files:
                seen.pause_s = now - seen.since
            seen.files, seen.since = files, now
        seen.due = now + LATER * (now - seen.since) if files == seen.found else 0.0

    def _is_complete(self, path: Path, seen: _Folder, now: float) -> bool:
        if self._marker or not seen.files:
            return bool(seen.files)
        unchanged_s = now - seen.since
        return unchanged_s >= self._settled_s and (unchanged_s >= OPEN_S or not self._is_open(path))

    def has_changed(self, path: Path) -> bool:
        """True if a folder is no more as it was found; it is found again then."""
        seen = self._seen.get(path)
        return seen is not None and self._files(path) != seen.found

    def _files(self, path: Path) -> Files:
        """The files that stand for the content of a folder: its marker, or all its files."""
        return frozenset(_files_below(path, self._marker))


def _files_below(folder: Path, marker: str) -> Iterator[tuple[str, int, int, int]]:
    found = ((root, name) for root, _, names in os.walk(folder) for name in names)
    for root, name in [(folder, marker)] if marker else found:
        path = os.path.join(root, name)
        if name == STEP_FILE:
            continue
        with suppress(OSError):  # it is not there, or not any more
            facts = os.stat(path)
            yield path, facts.st_size, facts.st_mtime_ns, facts.st_ino


def number_of(path: Path) -> int | None:
    """The number at the end of a folder's name."""
    match = _NUMBER.search(path.name)
    return int(match[1]) if match is not None else None


Send = Callable[[Record, Path | None], None]


class Pairing:
    """Holds the last record until it is known whether a checkpoint goes with it.

    `replace` receives a folder that the last record which was sent goes with, too.
    """

    def __init__(self, send: Send, replace: Callable[[Path], None] = lambda path: None) -> None:
        self._send = send
        self._replace = replace
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
        if checkpoint.grew and self._waiting is None:
            self._replace(checkpoint.path)
            return
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

    def flush(self, *, has_ended_well: bool = False) -> None:
        """No record follows. After exit code 0 a last checkpoint goes with the last record in any case."""
        held, waiting = self._held, self._waiting
        self._held = self._waiting = None
        if held is not None:
            self._send(held, waiting.path if waiting is not None else None)
        elif waiting is not None and has_ended_well:
            self._replace(waiting.path)
