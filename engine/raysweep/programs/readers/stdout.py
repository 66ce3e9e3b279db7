"""Lines of the program's stdout that have a pattern."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from raysweep.programs.emit import read_value
from raysweep.programs.readers.base import Reader, Record
from raysweep.programs.readers.lines import Lines

_ENDS: Final = re.compile(rb"[\r\n]")
"""A carriage return ends a line too: progress bars write these."""


class StdoutReader(Reader):
    """`feed` is called from the thread that passes the program's output on."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._cut = Lines("stdout", _ENDS)
        self._lines: deque[bytes] = deque()

    def feed(self, output: bytes) -> None:
        """Take a piece of stdout."""
        self._lines.extend(self._cut.feed(output))

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """See `Reader`."""
        if is_end and is_whole:
            self._lines.extend(self._cut.end())
        found: list[Record] = []
        while self._lines:
            match = self._pattern.search(self._lines.popleft().decode("utf-8", "replace"))
            if match is not None:
                record = {
                    name: read_value(text) for name, text in match.groupdict().items() if text is not None
                }
                if record:
                    found.append(record)
        return found

    def missing(self) -> str:
        """See `Reader`."""
        return f"no line of its stdout has {self._pattern.pattern!r}"
