"""Cuts text that comes in pieces into lines. Each byte is looked at once, however long a line is."""

from __future__ import annotations

import logging
import re
from typing import Final

MAX_LINE_BYTES: Final = 32 * 2**20
"""The longest line or request of a program that is read; a longer one is skipped."""
log = logging.getLogger("raysweep")


class Lines:
    """The lines of one source; `ends` matches what ends a line."""

    def __init__(self, source: str, ends: re.Pattern[bytes], max_bytes: int = MAX_LINE_BYTES) -> None:
        self._source = source
        self._ends = ends
        self._max_bytes = max_bytes
        self._partial = bytearray()
        self._is_too_long = False
        self.skipped = 0
        """The number of lines that were longer than `max_bytes`."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Take a piece; the lines that it ends."""
        *ended, begun = self._ends.split(piece)
        found: list[bytes] = []
        for part in ended:
            self._extend(part)
            found += self.end()
        self._extend(begun)
        return found

    def end(self) -> list[bytes]:
        """Nothing more belongs to the present line: the line, unless it is too long or empty."""
        line, is_too_long = bytes(self._partial), self._is_too_long
        self.clear()
        return [line] if line and not is_too_long else []

    def clear(self) -> None:
        """Forget the present line."""
        self._partial.clear()
        self._is_too_long = False

    def _extend(self, part: bytes) -> None:
        if not self._is_too_long:
            self._partial += part
        if len(self._partial) > self._max_bytes:
            self._partial.clear()
            self._is_too_long = True
            self.skipped += 1
            if self.skipped == 1:
                text = "%s has a line of more than %d bytes: such lines are not read"
                log.warning(text, self._source, self._max_bytes)
