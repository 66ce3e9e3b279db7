"""Scalars of TensorBoard event files, read without TensorBoard.

An event file is a TFRecord file of protobuf messages, of which a few fields are wanted: `Event.wall_time`
(1), `step` (2) and `summary` (5); `Summary.value` (1); `Value.tag` (1), `simple_value` (2) and `tensor` (8),
in which TF2 writes scalars. Whatever the bytes are, reading them raises ValueError or nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_FLOAT, _DOUBLE = 1, 2
_MAX_VARINT: Final = 10
_HEAD, _AROUND = 12, 16
"""Before a record: its length and that one's checksum; with the checksum behind it."""
MAX_RECORD: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value of a tag."""

    wall_time: float
    step: int
    tag: str
    value: float


def records_of(data: bytes) -> tuple[list[bytes], int, int | None]:
    """The whole records at the beginning, the bytes that they have, and the bytes up to the next one's end.

    The latter is None where the next one has a length that no record has.
    """
    found: list[bytes] = []
    position = 0
    while len(data) >= position + _HEAD:
        (size,) = struct.unpack_from("<Q", data, position)
        if size > MAX_RECORD:
            return found, position, None
        if len(data) < position + _AROUND + size:
            return found, position, position + _AROUND + size
        found.append(data[position + _HEAD : position + _HEAD + size])
        position += _AROUND + size
    return found, position, position


def scalars_of(event: bytes) -> list[Scalar]:
    """The scalars of one event. Raises ValueError: it is no event."""
    wall_time, step, summaries = 0.0, 0, []
    for number, kind, value in _fields(event):
        if (number, kind) == (1, _FIXED64):
            (wall_time,) = struct.unpack("<d", value)
        elif (number, kind) == (2, _VARINT):
            step = _signed(value)
        elif (number, kind) == (5, _BYTES):
            summaries.append(value)
    found = [_of_value(value) for summary in summaries for value in _values_of(summary)]
    return [Scalar(wall_time, step, tag, scalar) for tag, scalar in found if scalar is not None]


def _values_of(summary: bytes) -> Iterator[bytes]:
    return (value for number, kind, value in _fields(summary) if (number, kind) == (1, _BYTES))


def _of_value(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _BYTES):
            tag = value.decode("utf-8", "replace")
        elif (number, kind) == (2, _FIXED32):
            (scalar,) = struct.unpack("<f", value)
        elif number == 2:
            raise ValueError("a simple_value that is no float")
        elif (number, kind) == (8, _BYTES):
            scalar = _of_tensor(value)
    return tag, scalar


def _of_tensor(data: bytes) -> float | None:
    """A scalar: `dtype` (1), `tensor_content` (4), or the first of `float_val` (5) or `double_val` (6)."""
    dtype, content = 0, b""
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _VARINT):
            dtype = _signed(value)
        elif number in (4, 5, 6) and kind != _VARINT:
            content = value
    wanted = {_FLOAT: "<f", _DOUBLE: "<d"}.get(dtype)
    if wanted is None or len(content) != struct.calcsize(wanted):  # no number, or several
        return None
    (scalar,) = struct.unpack(wanted, content)
    return float(scalar)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of a protobuf message: their number, wire type and bytes; of a varint its own."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, end = _varint(data, position)
            yield number, kind, value.to_bytes(8, "little")
            position = end
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ValueError(f"a field of wire type {kind}")
        if size > len(data) - position:
            raise ValueError("a field that is cut off")
        yield number, kind, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + _MAX_VARINT]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value & (1 << 64) - 1, position + index + 1
    raise ValueError("a number that is cut off")


def _signed(value: bytes) -> int:
    return int.from_bytes(value, "little", signed=True)
