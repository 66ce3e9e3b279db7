"""Segments: what is written comes back, and no changed byte goes unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import JournalDamagedError
from raysweep.storage.journal.segment import (
    Segment,
    SegmentHeader,
    decode_segment,
    encode_merged,
    encode_segment,
    split_merged,
)

RECORDS = (b'{"type":"a","x":1}', b"{}", '{"name":"Łódź"}'.encode())


def _segment(number: int = 7, **fields: object) -> Segment:
    header = SegmentHeader(generation=2, number=number, writer="w", **fields)  # type: ignore[arg-type]
    return Segment(number=number, data=encode_segment(header, RECORDS), source=f"journal/{number}")


@given(st.lists(st.binary().filter(lambda data: b"\n" not in data)), st.integers(1), st.integers(1, 2**40))
def test_round_trip(records: list[bytes], generation: int, number: int) -> None:
    generation %= 2**53
    header = SegmentHeader(generation=generation, number=number, is_claim=True, repaired=3, kept=1)
    decoded = decode_segment(Segment(number=number, data=encode_segment(header, records), source=""))
    assert decoded.records == tuple(records)
    assert not decoded.is_torn
    assert decoded.header is not None
    assert (decoded.header.generation, decoded.header.number) == (generation, number)
    assert (decoded.header.is_claim, decoded.header.repaired, decoded.header.kept) == (True, 3, 1)


def test_cut_at_every_byte_is_torn_and_keeps_whole_records() -> None:
    whole = _segment()
    line_ends = [i + 1 for i, byte in enumerate(whole.data) if byte == ord("\n")]
    for length in range(len(whole.data)):
        for tail in (b"", b"\0" * 40):
            decoded = decode_segment(Segment(number=7, data=whole.data[:length] + tail, source=""))
            # A line that only lacks its end is whole: its checksum says so.
            complete = (
                max(0, sum(end <= length + 1 for end in line_ends) - 1) if length >= line_ends[0] else 0
            )
            assert decoded.is_torn, length
            assert decoded.records == RECORDS[:complete], length
            assert (decoded.header is None) == (length < line_ends[0]), length


def test_every_flipped_bit_is_damage_that_names_a_line() -> None:
    whole = _segment()
    for index in range(len(whole.data)):
        for bit in range(8):
            data = bytearray(whole.data)
            data[index] ^= 1 << bit
            with pytest.raises(JournalDamagedError) as caught:
                decode_segment(Segment(number=7, data=bytes(data), source="journal/7"))
            assert caught.value.path == "journal/7"
            assert "line " in caught.value.problem
            assert caught.value.lost


def test_damage_names_the_record() -> None:
    whole = _segment()
    data = whole.data.replace(b'"x":1', b'"x":2')
    with pytest.raises(JournalDamagedError) as caught:
        decode_segment(Segment(number=7, data=data, source="journal/7"))
    assert "line 2" in caught.value.problem
    assert caught.value.lost == "record 1 of 3"


def test_added_bytes_are_damage() -> None:
    with pytest.raises(JournalDamagedError, match="too many"):
        decode_segment(Segment(number=7, data=_segment().data + b"x", source=""))


def test_a_segment_under_another_number_is_damage() -> None:
    with pytest.raises(JournalDamagedError, match="something else"):
        decode_segment(Segment(number=8, data=_segment().data, source=""))


def test_another_format_says_what_to_do() -> None:
    from zlib import crc32

    text = b'{"format":2,"generation":1,"seq":1}'
    data = b"%08x %s\n" % (crc32(text), text)
    with pytest.raises(JournalDamagedError, match=r"has format 2.*use the version of raysweep that wrote it"):
        decode_segment(Segment(number=1, data=data, source=""))


def test_merged_segments_come_back_byte_for_byte() -> None:
    parts = [_segment(n) for n in range(5, 9)]
    parts[2] = Segment(number=7, data=parts[2].data[:-9], source="")  # a torn one that a claim repaired
    data = encode_merged(parts)
    split = split_merged(data, 5, 8, "merged")
    assert [(s.number, s.data) for s in split] == [(s.number, s.data) for s in parts]
    lines = data.split(b"\n")
    for segment in split:
        assert segment.data.split(b"\n")[0] in lines[segment.first_line - 1]


def test_a_merged_object_with_any_changed_byte_is_damage() -> None:
    data = encode_merged([_segment(n) for n in (1, 2)])
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 4
        with pytest.raises(JournalDamagedError):
            split_merged(bytes(changed), 1, 2, "merged")
        with pytest.raises(JournalDamagedError):
            split_merged(data[:index], 1, 2, "merged")


def test_a_segment_that_repairs_nothing_keeps_nothing_of_another() -> None:
    """The header then says neither, as in segments from before there were repairs."""
    header = decode_segment(_segment()).header
    assert header is not None
    assert (header.repaired, header.kept) == (None, 0)
    assert b"kept" not in _segment().data
