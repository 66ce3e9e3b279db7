"""The bytes of a journal segment: a header line, then one record a line, a CRC32 before each.

    9a3f01c2 {"format":1,"generation":2,"seq":7,"claim":false,"writer":"5be1...","records":2,"size_bytes":61}
    0c44d1aa {"type":"trial_reported",...}
    77be9f03 {"type":"trial_ended",...}

`records` and `size_bytes` (of what follows the header line) tell a segment that was cut short from one whose
bytes changed: the first can only be the last write of a dead controller on a file system without atomic
writes, and is repaired by the next claim; the second is damage. A merged object is an outer header line
(`{"format":1,"merged":true,"first":1,"last":64,"sizes_bytes":[...],"crc32":...}`) and the segments as they
were. Records are opaque here: JSON without newlines, made and read by the core's codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import orjson

from raysweep.errors import JournalDamagedError
from raysweep.storage.formats import OTHER_FIX, other_format

FORMAT_VERSION = 1
RESTORE_FIX = "restore the object from a backup, or start the sweep under a new key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment as stored. `source` and `first_line` (of the header, 1-based) are for messages."""

    number: int
    data: bytes
    source: str
    first_line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The header line of a segment."""

    generation: int
    number: int
    is_claim: bool = False
    """The first segment of a generation. Its object is never deleted: older controllers collide with it."""
    writer: str = ""
    """Random, one per claim: tells our own write that timed out and landed from another writer's."""
    records: int = 0
    size_bytes: int = 0
    repaired: int | None = None
    """On a claim: the number of the torn segment before it, accepted with its first `kept` records."""
    kept: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedSegment:
    """A segment taken apart. A torn one holds the records that are whole; its header may be lost."""

    header: SegmentHeader | None
    records: tuple[bytes, ...]
    is_torn: bool = False


def encode_segment(header: SegmentHeader, records: Sequence[bytes]) -> bytes:
    """The segment's bytes; `records` and `size_bytes` of the header are filled in."""
    body = b"".join([b"%08x %s\n" % (crc32(record), record) for record in records])
    fields: dict[str, object] = {
        "format": FORMAT_VERSION,
        "generation": header.generation,
        "seq": header.number,
        "claim": header.is_claim,
        "writer": header.writer,
        "records": len(records),
        "size_bytes": len(body),
    }
    if header.repaired is not None:
        fields |= {"repaired": header.repaired, "kept": header.kept}
    return _line(fields) + body


def decode_segment(segment: Segment) -> DecodedSegment:
    """Take a segment apart and check every byte of it.

    A segment that was cut short comes back with `is_torn`: whether that is acceptable depends on where it
    stands.

    Raises: JournalDamagedError for anything else that is not as it was written.
    """
    # Some file systems fill a cut-off tail with zeros after a crash; JSON lines hold none.
    data = segment.data.rstrip(b"\0")
    end = data.find(b"\n")
    if end < 0:
        return DecodedSegment(header=None, records=(), is_torn=True)
    header = decode_header(segment)
    body = data[end + 1 :]
    missing_bytes = header.size_bytes - len(body)
    if missing_bytes < 0:
        raise _damaged(segment, 0, f"{-missing_bytes} bytes too many", "nothing, if the surplus is removed")
    lines = body.split(b"\n")
    last = lines.pop()
    if last and missing_bytes and _is_whole(last):
        lines.append(last)
    for index, line in enumerate(lines):
        if not _is_whole(line):
            raise _damaged(segment, 1 + index, "checksum mismatch", f"record {index + 1} of {header.records}")
    if not missing_bytes and (last or len(lines) != header.records):
        raise _damaged(segment, len(lines), "line ends are not where they were", "where a record ends")
    return DecodedSegment(
        header=header, records=tuple(line[9:] for line in lines), is_torn=bool(missing_bytes)
    )


def decode_header(segment: Segment) -> SegmentHeader:
    """The header of a segment whose first line is complete.

    Raises: JournalDamagedError.
    """
    line = segment.data[: segment.data.find(b"\n")]
    fields = _decode_line(segment, line, f"segment {segment.number}")
    if fields.get("merged") or fields["seq"] != segment.number:
        raise _damaged(
            segment, 0, f"holds something else than segment {segment.number}", f"segment {segment.number}"
        )
    return SegmentHeader(
        generation=fields["generation"],
        number=fields["seq"],
        is_claim=fields["claim"],
        writer=fields["writer"],
        records=fields["records"],
        size_bytes=fields["size_bytes"],
        repaired=fields.get("repaired"),
        kept=fields.get("kept", 0),
    )


def read_header(segment: Segment) -> SegmentHeader | None:
    """The header of a segment, or None if it was cut off before its first line ended."""
    return decode_header(segment) if b"\n" in segment.data else None


def encode_merged(segments: Sequence[Segment]) -> bytes:
    """One object that holds adjacent segments, byte for byte."""
    body = b"".join([segment.data for segment in segments])
    fields = {
        "format": FORMAT_VERSION,
        "merged": True,
        "first": segments[0].number,
        "last": segments[-1].number,
        "sizes_bytes": [len(segment.data) for segment in segments],
        "crc32": crc32(body),
    }
    return _line(fields) + body


def split_merged(data: bytes, first: int, last: int, source: str) -> list[Segment]:
    """The segments `first`..`last` of a merged object, the whole of which is checked.

    Raises: JournalDamagedError, naming the line.
    """
    whole = Segment(number=first, data=data, source=source)
    lost = f"segments {first} to {last}"
    end = data.find(b"\n")
    fields = _decode_line(whole, data[: max(end, 0)], lost)
    body = data[end + 1 :]
    if not fields.get("merged") or (fields["first"], fields["last"]) != (first, last):
        raise _damaged(whole, 0, f"holds something else than {lost}", lost)
    sizes_bytes: list[int] = fields["sizes_bytes"]
    segments = _cut(body, sizes_bytes, first, source)
    if len(body) != sum(sizes_bytes) or crc32(body) != fields["crc32"]:
        for segment in segments:
            decode_segment(segment)  # names the line, if one is to blame
        problem = f"{len(body)} bytes instead of {sum(sizes_bytes)}, or a wrong checksum"
        raise _damaged(whole, 0, problem, lost)
    return segments


def _cut(body: bytes, sizes_bytes: list[int], first: int, source: str) -> list[Segment]:
    segments: list[Segment] = []
    start, line = 0, 2
    for number, size_bytes in enumerate(sizes_bytes, first):
        data = body[start : start + size_bytes]
        segments.append(Segment(number=number, data=data, source=source, first_line=line))
        start += size_bytes
        line += data.count(b"\n")
    return segments


def _line(fields: dict[str, Any]) -> bytes:
    text = orjson.dumps(fields)
    return b"%08x %s\n" % (crc32(text), text)


def _is_whole(line: bytes) -> bool:
    return line[:9] == b"%08x " % crc32(line[9:])


def _decode_line(segment: Segment, line: bytes, lost: str) -> dict[str, Any]:
    if not _is_whole(line):
        raise _damaged(segment, 0, "checksum mismatch in the header", lost)
    fields: dict[str, Any] = orjson.loads(line[9:])
    if fields["format"] != FORMAT_VERSION:
        problem = other_format(fields["format"], FORMAT_VERSION)
        raise JournalDamagedError(segment.source, problem, "nothing", OTHER_FIX)
    return fields


def _damaged(segment: Segment, line: int, problem: str, lost: str) -> JournalDamagedError:
    where = f"line {segment.first_line + line}: {problem} in segment {segment.number}"
    return JournalDamagedError(segment.source, where, lost, RESTORE_FIX)
