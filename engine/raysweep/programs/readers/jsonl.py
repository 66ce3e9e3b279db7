"""A file to which the program appends one JSON object a report."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

from raysweep.programs.readers.base import Record
from raysweep.programs.readers.lines import Lines

_ENDS: Final = re.compile(rb"\n")


class JsonlReader:
    """What stands in the file before the program starts is of an earlier attempt, and is skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._lines = Lines(str(path), _ENDS)
        self._appeared = False
        self._skipped = 0

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """See `Reader`. A line counts once its newline is there."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:  # it was written anew
                    self._offset = 0
                    self._lines.clear()
                file.seek(self._offset)
                received = file.read()
        except OSError:
            return []
        self._appeared = True
        self._offset += len(received)
        lines = self._lines.feed(received)
        if is_end and is_whole:
            lines += self._lines.end()
        return [record for line in lines if (record := self._parse(line)) is not None]

    def _parse(self, line: bytes) -> Record | None:
        if not line.strip():
            return None
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if isinstance(found, dict) and found:
            return found
        self._skipped += 1
        return None

    def missing(self) -> str:
        """See `Reader`."""
        if not self._appeared:
            return f"the file {self._path} never appeared"
        return f"{self._skipped} lines of {self._path} are no JSON objects" if self._skipped else ""
