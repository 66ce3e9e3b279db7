"""A journal backend in a dict: what the simulator and tests write to."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from raysweep.errors import JournalDamagedError, SegmentExistsError
from raysweep.storage.journal.segment import Segment


class MemoryBackend:
    """Segments in memory. Share one object between the controllers that share a sweep."""

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def append(self, number: int, data: bytes) -> None:
        """Keep the segment. Raises: SegmentExistsError."""
        with self._lock:
            if number in self.segments:
                raise SegmentExistsError(number)
            self.segments[number] = data

    def read_from(self, number: int) -> Iterator[Segment]:
        """The segments from `number` on. Raises: JournalDamagedError for a gap."""
        while (data := self.segments.get(number)) is not None:
            yield Segment(number=number, data=data, source=f"memory segment {number}")
            number += 1
        if any(other > number for other in self.segments):
            raise JournalDamagedError(f"memory segment {number}", "is missing", f"segment {number}")
