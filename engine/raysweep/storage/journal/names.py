"""The objects of a journal by their names: a segment each, or many merged into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentObject:
    """One object of a journal: the segments `first` to `last`."""

    first: int
    last: int
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """The object's name in the journal folder."""
        return (
            f"{self.first:012d}.jsonl"
            if self.first == self.last
            else f"{self.first:012d}-{self.last:012d}.jsonl"
        )

    @property
    def is_merged(self) -> bool:
        """True if it came from compaction."""
        return self.last > self.first


def cover(objects: Sequence[SegmentObject], position: int) -> Iterator[SegmentObject]:
    """The fewest objects (sorted as listed) that hold everything from `position` on, up to the first gap."""
    index, best = 0, None
    while True:
        while index < len(objects) and objects[index].first <= position:
            if best is None or objects[index].last > best.last:
                best = objects[index]
            index += 1
        if best is None or best.last < position:
            return
        yield best
        position = best.last + 1


def parse_name(name: str, size_bytes: int) -> SegmentObject | None:
    """The object of this name; None for any other file."""
    stem, dot, suffix = name.partition(".")
    first, _, last = stem.partition("-")
    if suffix != "jsonl" or not dot or not first.isdigit() or not (last or first).isdigit():
        return None
    item = SegmentObject(first=int(first), last=int(last or first), size_bytes=size_bytes)
    return item if item.name == name else None
