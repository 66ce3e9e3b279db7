"""Reading and claiming: torn ends are repaired, everything else that is wrong is an error."""

from __future__ import annotations

import pytest

from raysweep.errors import JournalDamagedError
from raysweep.storage.journal.journal import Journal, claim
from raysweep.storage.journal.names import SegmentObject
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.segment import Segment, SegmentHeader, encode_merged, encode_segment
from raysweep.storage.objects.store import Store
from raysweep.testing import MemoryBackend

RECORDS = [b'{"n":%d}' % n for n in range(4)]


def _claim_record(generation: int) -> bytes:
    return b'{"claim":%d}' % generation


def _append(backend: MemoryBackend | ObjectJournal, generation: int, number: int) -> None:
    backend.append(number, encode_segment(SegmentHeader(generation=generation, number=number), RECORDS))


def _journal_of_two() -> MemoryBackend:
    backend = MemoryBackend()
    claim(backend, _claim_record)
    _append(backend, 1, 2)
    return backend


def test_a_last_segment_cut_at_every_byte_is_repaired_and_stays_so() -> None:
    whole = _journal_of_two().segments[2]
    for length in range(len(whole)):
        backend = _journal_of_two()
        backend.segments[2] = whole[:length]
        journal = Journal(backend)
        records = list(journal.read())
        assert records == [_claim_record(1), *RECORDS][: len(records)]
        assert len(journal.repairs) == 1
        assert "segment 2 was cut short" in str(journal.repairs[0])
        claimed = journal.claim(_claim_record)
        assert claimed.number == 3
        _append(backend, claimed.generation, claimed.next_number)
        contents = Journal(backend).contents()
        assert contents.records == [*records, _claim_record(claimed.generation), *RECORDS]
        assert contents.generation == claimed.generation
        assert "repaired by generation" in str(contents.repairs[0])
        # The one who read the torn end before the repair continues reading where it was.
        assert list(journal.read()) == RECORDS


def test_a_claim_cut_at_every_byte_never_gives_its_generation_out_twice() -> None:
    backend = _journal_of_two()
    claim(backend, _claim_record)
    whole = backend.segments[3]
    for length in range(len(whole)):
        backend.segments = {1: backend.segments[1], 2: backend.segments[2], 3: whole[:length]}
        generation, number = claim(backend, _claim_record)
        assert generation == 3
        assert number == 5
        assert Journal(backend).contents().generation == generation


def test_a_segment_cut_short_in_the_middle_is_damage() -> None:
    for length in range(len(_journal_of_two().segments[2])):
        backend = _journal_of_two()
        _append(backend, 1, 3)
        backend.segments[2] = backend.segments[2][:length]
        with pytest.raises(JournalDamagedError) as caught:
            Journal(backend).contents()
        assert caught.value.path == "memory segment 2"
        assert caught.value.lost


def test_a_repaired_segment_that_loses_more_is_damage() -> None:
    backend = _journal_of_two()
    backend.segments[2] = backend.segments[2][:-3]
    claim(backend, _claim_record)
    backend.segments[2] = backend.segments[2][:-20]
    with pytest.raises(JournalDamagedError):
        Journal(backend).contents()


def test_generations_out_of_order_are_damage() -> None:
    for generation, is_claim in ((2, False), (1, True), (0, False)):
        backend = _journal_of_two()
        header = SegmentHeader(generation=generation, number=3, is_claim=is_claim)
        backend.segments[3] = encode_segment(header, RECORDS)
        with pytest.raises(JournalDamagedError, match="generation"):
            Journal(backend).contents()


def test_reading_goes_on_where_it_stopped() -> None:
    backend = _journal_of_two()
    journal = Journal(backend)
    assert len(list(journal.read())) == 5
    assert list(journal.read()) == []
    _append(backend, 1, 3)
    assert list(journal.read()) == RECORDS


def test_a_damaged_merged_object_falls_back_on_what_it_was_merged_from(store: Store) -> None:
    backend = ObjectJournal(store, "s/journal")
    claim(backend, _claim_record)
    for number in range(2, 6):
        _append(backend, 1, number)
    before = Journal(backend).contents()
    wide = SegmentObject(first=1, last=5)
    store.put(backend.key(wide), encode_merged(list(backend.read_from(1)))[:-1])
    assert Journal(backend).contents() == before
    store.delete(backend.key(SegmentObject(first=3, last=3)))
    with pytest.raises(JournalDamagedError) as caught:
        Journal(backend).contents()
    assert wide.name in caught.value.path


def test_overlapping_merged_objects_are_read_once(store: Store) -> None:
    backend = ObjectJournal(store, "s/journal")
    claim(backend, _claim_record)
    for number in range(2, 9):
        _append(backend, 1, number)
    before = Journal(backend).contents()
    segments: list[Segment] = list(backend.read_from(1))
    for first, last in ((1, 4), (3, 6), (2, 5), (6, 8)):
        wide = SegmentObject(first=first, last=last)
        store.put(backend.key(wide), encode_merged(segments[first - 1 : last]))
    for number in range(2, 9):
        store.delete(backend.key(SegmentObject(first=number, last=number)))
    assert Journal(backend).contents() == before


def test_foreign_objects_in_the_folder_are_left_alone(store: Store) -> None:
    backend = ObjectJournal(store, "s/journal")
    claim(backend, _claim_record)
    store.put("s/journal/notes.txt", b"hello")
    store.put("s/journal/000000000002.jsonl.bak", b"hello")
    store.put("s/journal/x-000000000002.jsonl", b"hello")
    assert Journal(backend).contents().last_number == 1


def test_an_object_merged_while_the_listing_is_old_is_found_again(store: Store) -> None:
    backend = ObjectJournal(store, "s/journal")
    claim(backend, _claim_record)
    for number in range(2, 9):
        _append(backend, 1, number)
    before = [segment.data for segment in backend.read_from(1)]
    reader = backend.read_from(1)
    seen = [next(reader).data for _ in range(3)]
    segments = list(backend.read_from(1))
    store.put(backend.key(SegmentObject(first=1, last=8)), encode_merged(segments))
    for number in range(2, 9):
        store.delete(backend.key(SegmentObject(first=number, last=number)))
    assert seen + [segment.data for segment in reader] == before
