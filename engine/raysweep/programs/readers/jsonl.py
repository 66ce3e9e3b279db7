"""A file to which the program appends one JSON object a report.

One that the program writes anew, whole or its newest rows, is compared with what was read: a row counts once.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.base import Reader, Record
from raysweep.programs.readers.growing_file import GrowingFile
from raysweep.programs.readers.lines import Lines
from raysweep.programs.readers.rewritten import count_repeated

_ENDS: Final = re.compile(rb"\n")
_WRITTEN_ANEW: Final = (
    "the file was written anew: rows that it repeats count once, and rows that stood in it only for a moment"
    " are missing; append to it"
)


class JsonlReader(Reader):
    """Reads lines of JSON; skips those of an earlier attempt, in the file before the program starts."""

    def __init__(self, path: Path, doubts: Doubts | None = None) -> None:
        self._path = path
        self._doubts = doubts or Doubts(str(path))
        self._file = GrowingFile(path)
        self._file.skip()
        self._lines = Lines(str(path), _ENDS)
        self._read: list[int] = []
        """The hashes of the lines that were read."""
        self._newest = self._lines_now = 0
        """The most lines that one version of the file had, and those of the present one."""
        self._anew: list[bytes] | None = None
        """The lines of a file that was written anew, while all of them may be old ones."""
        self._appeared = False
        self._skipped = 0

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """See `Reader`. A line counts once its newline is there."""
        lines: list[bytes] = []
        for data, is_anew in self._file.read():
            self._appeared = True
            if is_anew:
                self._lines.clear()
                self._lines_now, self._anew = 0, []
            lines += self._unread(self._lines.feed(data))
        if is_end and is_whole:
            lines += self._unread(self._lines.end())
        self._say(is_end)
        return [record for line in lines if (record := self._parse(line)) is not None]

    def _unread(self, lines: list[bytes]) -> list[bytes]:
        """Those of the lines that follow which were not read before."""
        self._lines_now += len(lines)
        if self._anew is not None:
            self._anew += lines
            now = [hash(line) for line in self._anew]
            repeated = count_repeated(self._read, now, self._newest) if now else None
            if repeated is None:
                return []
            if repeated < len(self._read):
                self._doubts.say(_WRITTEN_ANEW)
            lines, self._anew = self._anew[repeated:], None
        self._newest = max(self._newest, self._lines_now)
        self._read += map(hash, lines)
        return lines

    def _say(self, is_end: bool) -> None:
        if self._lines.skipped:
            self._doubts.say("lines that are too long are skipped")
        if self._file.problem:
            self._doubts.say(f"the file cannot be read: {self._file.problem}")
        if is_end and self._anew and [hash(line) for line in self._anew] != self._read:
            self._doubts.say(_WRITTEN_ANEW)

    def _parse(self, line: bytes) -> Record | None:
        if not line.strip():
            return None
        found = _json_of(line)
        if found is None:
            found = _json_of(line.decode("utf-8", "replace"))
            if isinstance(found, dict):
                self._doubts.say("bytes that are not UTF-8 are read as \N{REPLACEMENT CHARACTER}")
        if isinstance(found, dict) and found:
            return found
        self._skipped += 1
        self._doubts.say("lines that are no JSON objects are skipped")
        return None

    def missing(self) -> str:
        """See `Reader`."""
        if self._file.problem:
            return f"the file {self._path} cannot be read: {self._file.problem}"
        if not self._appeared:
            return f"the file {self._path} never appeared"
        return f"{self._skipped} lines of {self._path} are no JSON objects" if self._skipped else ""

    def close(self) -> None:
        """See `Reader`."""
        self._file.close()


def _json_of(line: bytes | str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
