"""The journal of a line of champions: read to its end, and continued by one decision after the other.

    <storage_path>/champions/<name>/<metric>.<mode>[.<data>]/000000000012.jsonl    an event
    <storage_path>/decided/<name>/<metric>.<mode>[.<data>]/000012                  its mark

It is a journal that several processes continue (`storage.journal.shared`). Events that are merged keep their
own objects.

A mark has the event's SHA-256 and is written after it: events that are missing at the end, as in an older
copy of the folder, are noticed by the first mark without an event. A kill may keep the newest mark from being
written; the next decision writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raysweep.errors import StorageError
from raysweep.runs.across_runs.events import Event, OtherFormatError, Stored, decode_event, encode_event
from raysweep.runs.across_runs.folds import fold
from raysweep.runs.across_runs.records import DECIDED, FOLDER, ChampionRecord, Line
from raysweep.specs.identity import file_name
from raysweep.storage.formats import OTHER_FIX
from raysweep.storage.journal.names import SegmentObject
from raysweep.storage.journal.shared import SharedJournal, decide
from raysweep.storage.objects.parallel import each_of
from raysweep.storage.objects.store import Store

RESTORE_FIX: Final = "restore it from a backup; `raysweep verify` names all that is damaged"
OLDER: Final = "is missing, and was written: the line of champions is an older copy"


class LineJournal:
    """Reads a line's journal from where it last stopped, and appends to its end.

    Args:
        store: Where the sweeps are.
        path: The line's, as `Line.path`.
    """

    def __init__(self, store: Store, path: str) -> None:
        self.store = store
        self.path = path
        self.events: list[Stored] = []
        """All that were read, the oldest first."""
        self._journal = SharedJournal(store, f"{FOLDER}/{path}", keeps_all=True, fix=RESTORE_FIX)
        self.objects = self._journal.objects
        self._is_marked = True

    def read(self) -> ChampionRecord:
        """The state of the line.

        Raises:
            StorageError: A part of it is damaged, has another format, or is missing: it is an older copy; or
                it is another line's. Or it cannot be read.
        """
        self._read_on()
        looked = -1
        while self.store.exists(self.mark(self._journal.last_number + 1)):
            if looked == self._journal.last_number:
                raise StorageError(self.source(looked + 1), OLDER, RESTORE_FIX)
            looked = self._journal.last_number
            self._read_on()
        self._check_end()
        return self.record

    @property
    def record(self) -> ChampionRecord:
        """The state of the line after what was read and written."""
        return fold(self.events)

    def append(self, line: Line, event: Event) -> None:
        """Continue the line by an event.

        Raises:
            SegmentExistsError: Another process has done so since it was read: read on, and decide again.
            StorageError: It cannot be written.
        """
        newest = self.events[-1] if self.events else None
        if newest is not None and not self._is_marked:
            self._put_mark(newest)
        record = encode_event(self.store.url, line, event, newest.digest if newest is not None else "")
        stored = decode_event(self.store.url, self._journal.append(record), record)
        self.events.append(stored)
        self._is_marked = False
        self._put_mark(stored)
        self._journal.merge()

    def key(self, number: int) -> str:
        """The key of an event in the store."""
        return self.objects.key(SegmentObject(first=number, last=number))

    def mark(self, number: int) -> str:
        """The key of an event's mark in the store."""
        return f"{DECIDED}/{self.path}/{number:06d}"

    def source(self, number: int) -> str:
        """An event's full name, for messages."""
        return f"{self.store.url}/{self.key(number)}"

    def check(self, stored: Stored, before: Stored | None) -> None:
        """See that an event is of this line. Raises: StorageError."""
        if stored.line.path != self.path:
            problem = f"holds the champion of {stored.line.name!r}, {stored.line}: it is another's"
            raise StorageError(self.source(stored.number), problem, RESTORE_FIX)
        if stored.previous != (before.digest if before is not None else ""):
            number = before.number if before is not None else stored.number
            problem = f"is not as it was written: event {stored.number} names another before it"
            raise StorageError(self.source(number), problem, RESTORE_FIX)

    def _read_on(self) -> None:
        for number, record in self._journal.read():
            self._add(number, record)

    def _add(self, number: int, record: bytes) -> None:
        try:
            stored = decode_event(self.store.url, number, record)
        except ValueError as error:
            fix = OTHER_FIX if isinstance(error, OtherFormatError) else RESTORE_FIX
            raise StorageError(self.source(number), str(error), fix) from error
        self.check(stored, self.events[-1] if self.events else None)
        self.events.append(stored)

    def _check_end(self) -> None:
        """See that the newest event is the one that was written, by its mark."""
        number = self._journal.last_number
        if not number:
            return
        made = (self.store.get(self.mark(number)) or b"").decode(errors="replace")
        self._is_marked = bool(made)
        is_whole = bool(self.events) and self.events[-1].number == number
        if made and not (is_whole and self.events[-1].digest == made):
            raise StorageError(self.source(number), "is not as it was written", RESTORE_FIX)

    def _put_mark(self, stored: Stored) -> None:
        self.store.put_if_absent(self.mark(stored.number), stored.digest.encode(), durable=True)
        self._is_marked = True


def change_line(
    store: Store, line: Line, make: Callable[[LineJournal, ChampionRecord], Event | None]
) -> LineJournal:
    """Continue the line by the event that `make` makes of how it stands; by none where that is None.

    Raises: StorageError: As `LineJournal.read`; or it cannot be written.
    """
    journal = LineJournal(store, line.path)

    def step() -> LineJournal:
        event = make(journal, journal.read())
        if event is not None:
            journal.append(line, event)
        return journal

    return decide(f"{store.url}/{line.key}", step)


def paths_of(store: Store, name: str | None = None) -> tuple[str, ...]:
    """The paths of all lines of this name, sorted; without a name, of all names. Raises: StorageError."""
    tops = (FOLDER, DECIDED)
    names = (
        {file_name(name)} if name is not None else {each for top in tops for each in store.list_folders(top)}
    )
    folders = [f"{top}/{each}" for top in tops for each in sorted(names)]
    found = each_of(store, store.list_folders, folders)
    pairs = zip(folders, found, strict=True)
    return tuple(sorted({f"{folder.partition('/')[2]}/{stem}" for folder, stems in pairs for stem in stems}))
