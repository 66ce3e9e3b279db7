"""Evidence: why a line of champions has the champion that it has, an entry for each decision of its journal.

Here every byte of the journal is looked at, also what repeats others, and all that is damaged is named; the
rest is shown still. `raysweep evidence` and `raysweep verify` read it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from raysweep.errors import JournalDamagedError, SpecError, StorageError
from raysweep.runs.across_runs.events import Stored, decode_event
from raysweep.runs.across_runs.folds import budget_flaws, evidence_of, fold
from raysweep.runs.across_runs.line_journal import OLDER, RESTORE_FIX, LineJournal, paths_of
from raysweep.runs.across_runs.records import ChampionRecord, Drift, Evidence, Facts, Line
from raysweep.specs.identity import slug
from raysweep.storage.journal.names import SegmentObject
from raysweep.storage.journal.segment import Segment, decode_segment, read_header, split_merged
from raysweep.storage.objects.store import Store

__all__ = ["Chain", "Drift", "Evidence", "Facts", "Flaw", "find_lines", "read_chain", "read_line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something in a line's journal that is not as it was written."""

    object: str
    """Its key in the store."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The evidence of a line, the oldest first, as far as it can be read."""

    entries: tuple[Evidence, ...] = ()
    flaws: tuple[Flaw, ...] = ()
    record: ChampionRecord = field(default_factory=ChampionRecord)


def read_chain(store: Store, line: Line) -> Chain:
    """All evidence of a line, each byte checked; what is wrong is in `flaws`, and raises nothing.

    Raises: StorageError: The storage does not answer.
    """
    looked = _Looked(LineJournal(store, line.path))
    events = looked.events()
    try:
        entries = tuple(evidence_of(events))
    except SpecError as error:  # facts that no version of ours wrote
        entries = ()
        looked.flaws.append(Flaw(object=line.key, problem=f"is damaged ({error})"))
    if not looked.flaws:  # else they follow from what is damaged
        looked.flaws.extend(_budget_flaws(looked, events))
    return Chain(entries=entries, flaws=tuple(looked.flaws), record=fold(events))


def _budget_flaws(looked: _Looked, events: Sequence[Stored]) -> Iterator[Flaw]:
    """Decisions by the budget of false promotions that do not follow, though their bytes are as written."""
    for stored, problem in budget_flaws(events):
        yield Flaw(object=looked.key(stored.number), problem=problem)


def find_lines(store: Store, name: str) -> tuple[Line, ...]:
    """The lines of champions of a name, or of the names that have this slug.

    Raises: StorageError: They cannot be read.
    """
    found = [read_line(store, path) for path in paths_of(store, name)]
    if found:
        return tuple(found)
    lines = (read_line(store, path) for path in paths_of(store))
    return tuple(line for line in lines if slug(line.name) == slug(name))


def read_line(store: Store, path: str) -> Line:
    """The line at this path. Raises StorageError: no event of it can be read."""
    journal = LineJournal(store, path)
    for item in journal.objects.list_objects():
        for segment in _segments(journal, item, []):
            found = _event(journal, segment)
            if isinstance(found, Stored):
                return found.line
    raise StorageError(f"{store.url}/{journal.objects.prefix}", "no event of it can be read", RESTORE_FIX)


class _Looked:
    """All objects of a line's journal, each looked at by itself."""

    def __init__(self, journal: LineJournal) -> None:
        self.flaws: list[Flaw] = []
        self._journal = journal
        self._copies: dict[int, list[tuple[str, Segment]]] = {}
        """The segments by number, each with the key of its object: its own, and those that repeat it."""
        self._is_torn: set[int] = set()
        for item in journal.objects.list_objects():
            for segment in _segments(journal, item, self.flaws):
                self._add(journal.objects.key(item), segment)

    def events(self) -> list[Stored]:
        """Those that can be read; the flaws are complete then."""
        self._look_beyond()
        found: list[Stored] = []
        wanted = ""
        for number in range(max(self._copies, default=0), 0, -1):
            # Behind another event that names it, it needs no mark.
            wanted = wanted or (self._journal.store.get(self._journal.mark(number)) or b"").decode(
                errors="replace"
            )
            stored = self._chosen(number, wanted)
            if stored is not None:
                found.append(stored)
            if number not in self._is_torn:
                wanted = stored.previous if stored is not None else ""
        found.reverse()
        self._check_first(found)
        self.flaws.sort(key=lambda flaw: flaw.object)
        return found

    def key(self, number: int) -> str:
        """The key of an event."""
        return self._journal.key(number)

    def _look_beyond(self) -> None:
        """Look at what no listing shows yet, and at what should be there by its mark."""
        journal, number = self._journal, max(self._copies, default=0) + 1
        while (data := journal.store.get(journal.key(number))) is not None or journal.store.exists(
            journal.mark(number)
        ):
            if data is None:
                data = journal.store.get(journal.key(number))  # written between the two looks
            if data is None:
                self.flaws.append(Flaw(object=journal.key(number), problem=OLDER))
            else:
                self._add(
                    journal.key(number), Segment(number=number, data=data, source=journal.source(number))
                )
            number += 1

    def _chosen(self, number: int, wanted: str) -> Stored | None:
        """The copy of an event that is as it was written, else any that can be read.

        Args:
            number: The event's.
            wanted: Its SHA-256; empty where that is not known.
        """
        journal, own = self._journal, self._journal.key(number)
        copies = self._copies.setdefault(number, [])
        if own not in [key for key, _ in copies]:
            self._look_for(number)
        readable: list[tuple[str, Stored]] = []
        for key, segment in copies:
            found = _event(journal, segment)
            if isinstance(found, Stored):
                readable.append((key, found))
            elif found or (wanted and not self._is_repaired(number)):
                self.flaws.append(Flaw(object=key, problem=found or "is damaged: it was cut short"))
            else:
                self._is_torn.add(number)  # a kill on a file system without atomic writes: never answered
        sound = [each for each in readable if not wanted or each[1].digest == wanted]
        for key, stored in readable:
            if (key, stored) not in sound:
                problem = "is not as it was written: its SHA-256 is another"
                self.flaws.append(Flaw(object=key, problem=problem))
        chosen = sound or readable
        return chosen[0][1] if chosen else None

    def _check_first(self, found: list[Stored]) -> None:
        if found and found[0].number == 1 and found[0].previous:
            self.flaws.append(
                Flaw(object=self._journal.key(1), problem="is the first, and names one before it")
            )

    def _is_repaired(self, number: int) -> bool:
        """True if the event after one that was cut short says so."""
        headers = (read_header(segment) for _, segment in self._copies.get(number + 1, ()))
        return any(header is not None and header.repaired == number for header in headers)

    def _look_for(self, number: int) -> None:
        """An event that the listing lacks."""
        key, source = self._journal.key(number), self._journal.source(number)
        data = self._journal.store.get(key)
        if data is not None:
            self._add(key, Segment(number=number, data=data, source=source))
        elif all(flaw.object != key for flaw in self.flaws):
            self.flaws.append(Flaw(object=key, problem="is missing"))

    def _add(self, key: str, segment: Segment) -> None:
        self._copies.setdefault(segment.number, []).append((key, segment))


def _segments(journal: LineJournal, item: SegmentObject, flaws: list[Flaw]) -> Iterator[Segment]:
    data = journal.store.get(journal.objects.key(item))
    source = journal.objects.source(item)
    if data is None:
        return  # merged meanwhile
    if not item.is_merged:
        yield Segment(number=item.first, data=data, source=source)
        return
    try:
        yield from split_merged(data, item.first, item.last, source)
    except JournalDamagedError as error:
        flaws.append(Flaw(object=journal.objects.key(item), problem=f"is damaged ({error.problem})"))


def _event(journal: LineJournal, segment: Segment) -> Stored | str:
    """The event of a segment; else what is wrong with it, empty where it was cut short."""
    try:
        decoded = decode_segment(segment)
        if decoded.is_torn:
            return ""
        stored = decode_event(journal.store.url, segment.number, decoded.records[0])
    except JournalDamagedError as error:
        return f"is damaged ({error.problem})"
    except (ValueError, IndexError) as error:
        return str(error)
    if stored.line.path != journal.path:
        return f"is of {stored.line.name!r}, {stored.line}: it is another line's"
    return stored
