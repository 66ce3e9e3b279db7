"""Scalars of TensorBoard event files below a folder.

Events of several files are taken in the order of their time. What cannot be read is skipped and said: nothing
in a file ends a trial.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.base import Reader, Record
from raysweep.programs.readers.curves import STEP, Curves
from raysweep.programs.readers.events import Scalar, records_of, scalars_of


@dataclass(slots=True)
class _File:
    path: str
    folder: str
    """Below the folder that is read."""
    inode: int
    offset: int = 0
    wanted: int = 0
    """The bytes that it has once its present record is whole."""
    is_broken: bool = False


class TensorBoardReader(Reader):
    """The scalars of one step are a record, complete once a later step begins."""

    def __init__(self, folder: Path, doubts: Doubts | None = None, ranked: Collection[str] = ()) -> None:
        self._folder = folder
        self._doubts = doubts or Doubts(str(folder))
        self._curves = Curves(self._doubts, ranked)
        self._files: dict[str, _File] = {}
        self._step = 0
        self._held: dict[tuple[str, str, str], float] = {}
        """By tag, folder and file: the values of `_step`."""
        for file, size in self._look():
            file.offset = size  # what earlier attempts have written is theirs
        self._has_files = False

    def _look(self) -> Iterator[tuple[_File, int]]:
        """The event files, each once however many links lead to it, and their sizes."""
        seen: set[tuple[int, int]] = set()
        for path in sorted(_event_files(self._folder)):
            try:
                facts = os.stat(path)
            except OSError:
                continue
            if not stat.S_ISREG(facts.st_mode) or (facts.st_dev, facts.st_ino) in seen:
                continue
            seen.add((facts.st_dev, facts.st_ino))
            yield self._file(path, facts), facts.st_size

    def _file(self, path: str, facts: os.stat_result) -> _File:
        file = self._files.get(path)
        if file is None or facts.st_ino != file.inode or facts.st_size < file.offset:
            if file is not None:
                self._doubts.say("an event file was written anew: its events count once more")
            folder = os.path.relpath(os.path.dirname(path), self._folder)
            file = self._files[path] = _File(path, folder, facts.st_ino)
        return file

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """See `Reader`."""
        read = []
        for file, size in self._look():
            self._has_files = True
            read.append([(scalar, file) for scalar in self._scalars(file, size)])
            if is_end and file.offset < size and not file.is_broken:
                self._doubts.say("an event file ends in the middle of a record, which is not read")
        found: list[Record] = []
        for scalar, file in heapq.merge(*read, key=lambda each: each[0].wall_time):
            self._curves.add(scalar, file.folder, file.path)
            found += self._hold(scalar, file)
        self._curves.say()
        return found + self._end() if is_end else found

    def _hold(self, scalar: Scalar, file: _File) -> list[Record]:
        """Keep a value with those of its step; the record that it ends."""
        key = scalar.tag, file.folder, file.path
        is_again = key in self._held and scalar.step == self._step
        if is_again:
            text = f"the tag {scalar.tag!r} has several values at one step, each a report"
            self._doubts.say(f"{text}: give add_scalar the step")
        ended = self._end() if is_again or scalar.step != self._step else []
        self._step = scalar.step
        self._held[key] = scalar.value
        return ended

    def _end(self) -> list[Record]:
        held, self._held = self._held, {}
        if not held:
            return []
        return [{STEP: self._step} | self._curves.names_of(held)]

    def _scalars(self, file: _File, size: int) -> list[Scalar]:
        if file.is_broken or size <= file.offset or size < file.wanted:
            return []
        try:
            with open(file.path, "rb") as opened:
                opened.seek(file.offset)
                data = opened.read()
        except OSError:
            return []
        records, read, wanted = records_of(data)
        if wanted is None:
            file.is_broken = True
            self._doubts.say("an event file is damaged, and is not read any further")
        file.offset, file.wanted = file.offset + read, file.offset + (wanted or 0)
        return [scalar for record in records for scalar in self._of_record(record)]

    def _of_record(self, record: bytes) -> list[Scalar]:
        try:
            return scalars_of(record)
        except ValueError:
            self._doubts.say("an event file has records that are no events, which are skipped")
            return []

    def missing(self) -> str:
        """See `Reader`."""
        if not self._has_files:
            return f"no TensorBoard event file appeared in {self._folder}"
        return f"the event files in {self._folder} have no scalars"


def _event_files(folder: Path) -> Iterator[str]:
    for root, _, names in os.walk(folder):
        yield from (os.path.join(root, name) for name in names if "tfevents" in name)
