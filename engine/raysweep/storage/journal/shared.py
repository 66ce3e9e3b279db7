"""A journal that several processes continue, one event after the other.

Each event is a claim: of two decisions at once one gets the next number, and the other decides again against
what that one wrote. Every 64 events are merged into one object for quick reading.

Reading costs what there are events, in a request for each merged object and for each event after these.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from raysweep.errors import JournalDamagedError, SegmentExistsError, StorageError, StorageUnavailableError
from raysweep.storage.journal.compaction import SINGLES
from raysweep.storage.journal.journal import Journal
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.store import Store

log = logging.getLogger("raysweep")
_TRIES: Final = 50
_PAUSE_S: Final = 0.02
T = TypeVar("T")


class SharedJournal:
    """Reads a journal from where it last stopped, and appends to its end.

    Args:
        store: Where it is.
        folder: Its folder there.
        keeps_all: Events that are merged keep their own objects.
        fix: What to do about a damaged one.
    """

    def __init__(self, store: Store, folder: str, *, keeps_all: bool = False, fix: str = RESTORE_FIX) -> None:
        self.objects = ObjectJournal(store, folder, keeps_all=keeps_all)
        self.url = f"{store.url}/{folder}"
        self._journal = Journal(self.objects)
        self._fix = fix

    @property
    def last_number(self) -> int:
        """The number of the newest event that was read or written; 0: none."""
        return self._journal.last_number

    def read(self) -> Iterator[tuple[int, bytes]]:
        """The events since the last call, with their numbers. Raises: StorageError: one is damaged."""
        try:
            for record in self._journal.read():
                yield self._journal.last_number, record
        except JournalDamagedError as error:
            fix = self._fix if error.fix == RESTORE_FIX else error.fix
            raise StorageError(error.path, f"is damaged ({error.problem})", fix) from error

    def append(self, record: bytes) -> int:
        """Write the next event; its number.

        Raises:
            SegmentExistsError: Another process has written one since this one read.
            StorageError: It cannot be written.
        """
        return self._journal.claim(lambda _: record).number

    def merge(self) -> None:
        """Merge events, where the newest completes a number of them; it stays by itself."""
        if self._journal.last_number % SINGLES != 1:
            return
        try:
            for _ in self.objects.compact():
                pass
        except StorageError as error:
            log.warning("%s: merging its events is put off: %s", self.url, error)


def decide(source: str, step: Callable[[], T]) -> T:
    """Call `step`, which reads, decides and appends, until no other process was faster; its result.

    Raises: StorageError: They always were, or as `step`.
    """
    for tried in range(_TRIES):
        try:
            return step()
        except SegmentExistsError:
            time.sleep(_PAUSE_S * tried)
    raise StorageUnavailableError(source, f"changed {_TRIES} times while it was written", "try again")
