"""Merging old journal segments, so that a night of them leaves tens of objects instead of a hundred thousand.

64 single segments become one object; 8 of those become one again, and so on, as long as the result stays
small enough to be held in memory. A merged object is put create-only and holds the segments byte for byte;
then what it contains is deleted, claims excepted. Two controllers may do this at once, one of them
superseded: what is deleted is always contained whole in one wider object that was read or written first, so
no order of their steps loses a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from raysweep.errors import StorageError
from raysweep.storage.journal.names import SegmentObject, cover
from raysweep.storage.journal.segment import Segment, decode_segment, encode_merged, read_header
from raysweep.storage.objects.store import Store

SINGLES = 64
"""The number of single segments in a merged object."""
FAN_IN = 8
"""The number of merged objects of one level in one of the next."""
MAX_OBJECT_BYTES = 32 * 1024 * 1024


class Compactable(Protocol):
    """The parts of `ObjectJournal` that compaction uses."""

    store: Store
    known_claims: set[int]

    def key(self, item: SegmentObject) -> str: ...

    def source(self, item: SegmentObject) -> str: ...

    def list_objects(self) -> list[SegmentObject]: ...

    def load(self, item: SegmentObject) -> list[Segment] | None: ...


def compact(journal: Compactable) -> Iterator[None]:
    """Merge what is worth merging and delete what is held twice; stops after each storage operation."""
    objects = journal.list_objects()
    yield
    for run in plan_merges(objects):
        yield from _merge(journal, run)
    yield from _delete_repeated(journal)


def plan_merges(objects: Sequence[SegmentObject]) -> list[list[SegmentObject]]:
    """The runs of adjacent objects to merge, oldest first. The newest object stays as it is."""
    chain = list(cover(objects, objects[0].first))[:-1] if objects else []
    runs: list[list[SegmentObject]] = []
    for level, group in groupby(chain, key=_level):
        if level is not None:
            runs += _cut_runs(list(group), SINGLES if level == 0 else FAN_IN)
    return runs


def _level(item: SegmentObject) -> int | None:
    """0 for less than 64 segments, then one more for each factor of 8; None for an object that is full."""
    if item.size_bytes > MAX_OBJECT_BYTES // 2:
        return None
    width, level = (item.last - item.first + 1) // SINGLES, 0
    while width:
        width, level = width // FAN_IN, level + 1
    return level


def _cut_runs(items: list[SegmentObject], count: int) -> list[list[SegmentObject]]:
    runs = []
    while len(items) >= count:
        run, size = [items[0]], items[0].size_bytes
        for item in items[1:count]:
            size += item.size_bytes
            if size > MAX_OBJECT_BYTES:
                break
            run.append(item)
        items = items[len(run) :]
        if len(run) > 1:
            runs.append(run)
    return runs


def _merge(journal: Compactable, run: list[SegmentObject]) -> Iterator[None]:
    segments: list[Segment] = []
    for item in run:
        found = journal.load(item)
        if found is None:  # another controller merged it; what it left is planned anew next time
            return
        if not item.is_merged:
            decode_segment(found[0])
        last = segments[-1].number if segments else 0
        segments += [segment for segment in found if segment.number > last]
        yield
    wide = SegmentObject(first=run[0].first, last=run[-1].last)
    data = encode_merged(segments)
    if not journal.store.put_if_absent(journal.key(wide), data, durable=True):
        yield
        if journal.store.get(journal.key(wide)) != data:
            raise StorageError(
                journal.source(wide), "differs from the segments it was merged from", "check it"
            )
    yield
    _delete_contained(journal, segments, run)
    yield


def _delete_repeated(journal: Compactable) -> Iterator[None]:
    """Delete what an interrupted compaction left behind: objects that a wider one contains."""
    objects = journal.list_objects()
    yield
    for wide in [item for item in cover(objects, objects[0].first) if item.is_merged] if objects else []:
        inside = [o for o in objects if o != wide and wide.first <= o.first and o.last <= wide.last]
        if all(o.first in journal.known_claims for o in inside if not o.is_merged) and not any(
            o.is_merged for o in inside
        ):
            continue
        segments = journal.load(wide)
        yield
        if segments is not None:
            _delete_contained(journal, segments, inside)
            yield


def _delete_contained(
    journal: Compactable, segments: list[Segment], contained: Sequence[SegmentObject]
) -> None:
    """Delete objects whose segments are all among `segments`, except claims:

    older controllers must hit those.
    """
    first = segments[0].number
    doomed = []
    for item in contained:
        if not item.is_merged:
            header = read_header(segments[item.first - first])
            if header is None or header.is_claim:
                journal.known_claims.add(item.first)
                continue
        doomed.append(journal.key(item))
    journal.store.delete(*doomed)
