"""A journal's objects in a store: a segment each, or many merged into one.

    journal/000000000001.jsonl                segment 1
    journal/000000000001-000000000064.jsonl   segments 1 to 64, merged

Objects may overlap while controllers compact; what one number holds is the same in all of them, so reading
takes the widest. A listing is no snapshot: an object may be merged and deleted between listing and reading,
and what is merged while a listing runs may be in it neither by itself nor merged. In some stores and network
file systems a listing also lags by seconds: a new object is not in it yet, a deleted one still is. So what is
missing is read by its name, and we list again: only what stays missing for `LAG_S` is damage, and the end is
only where the next listing shows nothing merged either.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from time import monotonic, sleep
from typing import Final

from raysweep.errors import JournalDamagedError, SegmentExistsError
from raysweep.storage.journal.compaction import compact
from raysweep.storage.journal.names import SegmentObject, cover, parse_name
from raysweep.storage.journal.segment import RESTORE_FIX, Segment, split_merged
from raysweep.storage.objects.store import Store

LAG_S: Final = 5.0
"""The longest that a listing may lag behind the writes."""
_PAUSE_S: Final = 0.05


class ObjectJournal:
    """A journal in an object store: a segment an object, old ones merged by compaction.

    Args:
        store: Where it lies.
        prefix: The folder of its objects.
        keeps_all: Every segment is a claim, so that no object of one is ever deleted. Then the end is where
            no object has the next number, whatever a listing says.
    """

    def __init__(self, store: Store, prefix: str, *, keeps_all: bool = False) -> None:
        self.store = store
        self.prefix = prefix
        self.keeps_all = keeps_all
        self.known_claims: set[int] = set()
        """Numbers of claims that merged objects repeat: their own objects stay."""
        self._next: int | None = None

    def key(self, item: SegmentObject) -> str:
        """The object's key in the store."""
        return f"{self.prefix}/{item.name}"

    def source(self, item: SegmentObject) -> str:
        """The object's full name, for messages."""
        return f"{self.store.url}/{self.key(item)}"

    def list_objects(self) -> list[SegmentObject]:
        """All objects of the journal, by first number, the widest first."""
        found = [
            parse_name(info.key.rpartition("/")[2], info.size_bytes) for info in self.store.list(self.prefix)
        ]
        return sorted((item for item in found if item), key=lambda item: (item.first, -item.last))

    def append(self, number: int, data: bytes) -> None:
        item = SegmentObject(first=number, last=number)
        if not self.store.put_if_absent(self.key(item), data, durable=True):
            raise SegmentExistsError(number)
        if number != self._next and not self.keeps_all and self._was_merged(number):
            # We slept; the number was written, merged and deleted. What we put is ignored: the merged object
            # is wider.
            raise SegmentExistsError(number)
        self._next = number + 1

    def read_from(self, number: int) -> Iterator[Segment]:
        position, since, pause_s = number, monotonic(), 0.0
        damaged: dict[tuple[int, int], JournalDamagedError] = {}
        while True:
            objects = [item for item in self.list_objects() if (item.first, item.last) not in damaged]
            start, bad = position, len(damaged)
            for item in cover(objects, position):
                try:
                    segments = self._load(item, position, damaged.keys())
                except JournalDamagedError as error:
                    # A merged object repeats what narrower ones may still hold.
                    damaged[item.first, item.last] = error
                    break
                if segments is None:  # merged and deleted since the listing
                    break
                for segment in segments:
                    yield segment
                    position = segment.number + 1
            else:
                for (first, last), damage in damaged.items():
                    if first <= position <= last:
                        raise damage
                # A listing is no snapshot: what is there may have been merged while it ran.
                is_end = not any(item.last >= position for item in objects)
                if is_end and self.keeps_all:
                    yield from self._by_name(position)
                    return
                if is_end and not (objects and self._was_merged(position, damaged.keys(), listings=1)):
                    return
            if (position, len(damaged)) == (start, bad) and (found := self._unlisted(position)) is not None:
                yield found
                position += 1
            if (position, len(damaged)) != (start, bad):
                since, pause_s = monotonic(), 0.0
            elif monotonic() - since >= LAG_S:
                raise self._gap(position)
            else:
                pause_s = min(1.0, 2 * pause_s + _PAUSE_S)
                sleep(pause_s)

    def _unlisted(self, position: int) -> Segment | None:
        """The segment at `position`, if it is there although the listing lacks it."""
        item = SegmentObject(first=position, last=position)
        segments = self._load(item, position, frozenset())
        return segments[0] if segments else None

    def _by_name(self, position: int) -> Iterator[Segment]:
        while (found := self._unlisted(position)) is not None:
            yield found
            position += 1

    def compact(self) -> Iterator[None]:
        return compact(self)

    def _load(
        self, item: SegmentObject, position: int, damaged: Set[tuple[int, int]]
    ) -> list[Segment] | None:
        """The object's segments from `position` on; None if it is gone."""
        segments = self.load(item)
        if segments is None or (not item.is_merged and self._is_superseded(segments[0], damaged)):
            return None
        return [segment for segment in segments if segment.number >= position]

    def load(self, item: SegmentObject) -> list[Segment] | None:
        """The segments in one object, checked if it is a merged one; None if it is gone."""
        data = self.store.get(self.key(item))
        if data is None:
            return None
        if item.is_merged:
            return split_merged(data, item.first, item.last, self.source(item))
        return [Segment(number=item.first, data=data, source=self.source(item))]

    def _is_superseded(self, segment: Segment, damaged: Set[tuple[int, int]]) -> bool:
        """True if a claim was put at a number that had been written and merged before (see `journal`).

        The merged object was there before such a claim, so listings made after reading the claim show it.
        """
        if self.keeps_all or b'"claim":true' not in segment.data[:512].partition(b"\n")[0]:
            return False
        return self._was_merged(segment.number, damaged)

    def _was_merged(
        self, number: int, damaged: Set[tuple[int, int]] = frozenset(), *, listings: int = 2
    ) -> bool:
        """True if there is a merged object that holds the number.

        One listing may miss it: it was merged into a wider one, whose name came too late to be seen, and was
        deleted too early. The next listing shows the wider one.
        """
        return any(
            item.is_merged and item.first <= number <= item.last and (item.first, item.last) not in damaged
            for _ in range(listings)
            for item in self.list_objects()
        )

    def _gap(self, position: int) -> JournalDamagedError:
        later = min(
            (item.first for item in self.list_objects() if item.first > position), default=position + 1
        )
        missing = self.source(SegmentObject(first=position, last=position))
        return JournalDamagedError(
            missing,
            "is missing, though later segments exist",
            f"segments {position} to {later - 1}",
            RESTORE_FIX,
        )
