"""Lines of the program's stdout that have a pattern."""

from __future__ import annotations

import re
from collections import deque

from raysweep.programs.emit import read_value
from raysweep.programs.readers.base import Record


class StdoutReader:
    """`feed` is called from the thread that passes the program's output on."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._lines: deque[str] = deque()
        self._partial = b""

    def feed(self, output: bytes) -> None:
        """Take a piece of stdout. A carriage return ends a line too: progress bars write these."""
        *lines, self._partial = re.split(rb"[\r\n]", self._partial + output)
        self._lines.extend(line.decode("utf-8", "replace") for line in lines if line)

    def read(self, *, is_end: bool = False) -> list[Record]:
        """See `Reader`."""
        if is_end and self._partial:
            self._lines.append(self._partial.decode("utf-8", "replace"))
            self._partial = b""
        found: list[Record] = []
        while self._lines:
            match = self._pattern.search(self._lines.popleft())
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
