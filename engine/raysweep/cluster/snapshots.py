"""Snapshots of a running sweep, so that a takeover reads only the end of its journal.

The event loop freezes the state, which takes a moment; a thread serialises, hashes and stores it. A
snapshot holds the state at the end of a segment: the journal's writer ends a segment there, and the frozen
state is stored once that segment is durable. A missing or damaged snapshot costs time at the next start,
nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, thread_time
from typing import Final

from raysweep.core.state.frozen import FrozenState, freeze
from raysweep.core.state.sweep import SweepState
from raysweep.errors import StorageError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.journal.writer import JournalWriter

# Replaying this many records takes half a second to a second.
EVERY_RECORDS: Final = 50_000
EVERY_S: Final = 2.0
# Snapshots take at most 1/SHARE of a processor, and one is under way for at most 1/4 of the time.
SHARE: Final = 20
RESTS: Final = 3
log = logging.getLogger("raysweep")


class Snapshots:
    """Writes a snapshot after `EVERY_RECORDS` records and `EVERY_S` seconds, one at a time.

    `undeleted`: the checkpoints that nothing needs any more and that are still there.
    """

    def __init__(
        self,
        folder: SweepFolder,
        writer: JournalWriter,
        state: SweepState,
        undeleted: Callable[[], Sequence[str]],
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._state = state
        self._undeleted = undeleted
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="raysweep-snapshot")
        self._is_under_way = False
        self.records = 0
        self._next_at = monotonic() + EVERY_S

    def look(self) -> None:
        """Begin one if it is time. Call it between two events, on their thread."""
        has_grown = self._writer.written - self.records >= EVERY_RECORDS
        if has_grown and not self._is_under_way and monotonic() >= self._next_at:
            self.begin()

    def begin(self) -> None:
        """Begin to write the state as it is now."""
        self._is_under_way, self.records = True, self._writer.written
        frozen, undeleted = freeze(self._state), tuple(self._undeleted())

        def put(number: int) -> None:
            with suppress(RuntimeError):  # closed meanwhile
                self._thread.submit(self._put, number, frozen, undeleted)

        self._writer.mark(put)

    def close(self) -> None:
        """Wait for the one that is being written."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _put(self, number: int, frozen: FrozenState, undeleted: Sequence[str]) -> None:
        began, used_s = monotonic(), thread_time()
        try:
            self._folder.snapshots.write(number, frozen.parts(), undeleted)
        except StorageError as error:
            log.warning("no snapshot was written: %s", error)
        took_s, used_s = monotonic() - began, thread_time() - used_s
        self._next_at = monotonic() + max(EVERY_S, SHARE * used_s, RESTS * took_s)
        self._is_under_way = False
