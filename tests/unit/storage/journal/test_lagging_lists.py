"""A journal in a store whose listings lag: new objects are not listed yet, deleted ones still are."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from raysweep.errors import JournalDamagedError
from raysweep.storage.journal import compaction, objects
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.segment import SegmentHeader, encode_segment
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import ObjectInfo
from raysweep.storage.objects.wrapped import WrappedStore

LATE_S = 0.7


class LaggingStore(WrappedStore):
    """Lists what was there a moment ago; what is asked for by name is there at once."""

    def __init__(self) -> None:
        super().__init__(open_store(f"memory://{secrets.token_hex(8)}"))
        self._looks: list[tuple[float, list[ObjectInfo]]] = [(0.0, [])]

    def changed(self) -> None:
        self._looks.append((time.monotonic(), list(super().list(""))))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        late = time.monotonic() - LATE_S
        found = next(found for at, found in reversed(self._looks) if at <= late)
        return iter([info for info in found if info.key.startswith(prefix)])


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LaggingStore:
    monkeypatch.setattr(objects, "LAG_S", 5.0)  # as it is outside of these tests
    return LaggingStore()


def append(store: LaggingStore, first: int, last: int) -> None:
    for number in range(first, last + 1):
        header = SegmentHeader(generation=1, number=number)
        store.inner.put(f"s/journal/{number:012d}.jsonl", encode_segment(header, [b"%d" % number]))


def numbers(store: LaggingStore) -> list[int]:
    return [segment.number for segment in ObjectJournal(store, "s/journal").read_from(1)]


def test_a_segment_that_is_not_listed_yet_is_read_by_its_name(store: LaggingStore) -> None:
    append(store, 1, 2)
    append(store, 4, 4)
    store.changed()
    time.sleep(LATE_S)
    append(store, 3, 3)
    store.changed()
    began = time.monotonic()
    assert numbers(store) == [1, 2, 3, 4]
    assert time.monotonic() - began < LATE_S / 2, "it was not waited for"


def test_segments_that_are_listed_and_were_merged_meanwhile_are_waited_for(store: LaggingStore) -> None:
    append(store, 1, 8)
    store.changed()
    time.sleep(LATE_S)
    with patch.object(compaction, "SINGLES", 4), patch.object(compaction, "FAN_IN", 2):
        for _ in ObjectJournal(store.inner, "s/journal").compact():
            pass
    store.changed()
    assert store.inner.get("s/journal/000000000001.jsonl") is None, "they were merged and deleted"
    assert numbers(store) == [*range(1, 9)]


def test_a_segment_that_stays_away_is_damage(store: LaggingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LAG_S", 1.0)  # as nothing comes, however long it is waited for
    append(store, 1, 2)
    append(store, 4, 4)
    store.changed()
    time.sleep(LATE_S)
    with pytest.raises(JournalDamagedError, match="is missing, though later segments exist"):
        numbers(store)
