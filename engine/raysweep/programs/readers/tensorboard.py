"""Scalars of TensorBoard event files, read without TensorBoard.

An event file is a TFRecord file of protobuf messages, of which a few fields are wanted: `Event.step` (2) and
`Event.summary` (5); `Summary.value` (1); `Value.tag` (1), `simple_value` (2) and `tensor` (8), in which TF2
writes scalars.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from raysweep.programs.readers.base import Record

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_FLOAT, _DOUBLE = 1, 2
_MAX_RECORD: Final = 1 << 30


class TensorBoardReader:
    """The scalars of one step are a record, complete once a later step begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # What earlier attempts have written is theirs.
        self._offsets = {path: path.stat().st_size for path in self._files()}
        self._wanted: dict[Path, int] = {}
        """The bytes that a file has once its present record is whole."""
        self._held: Record = {}
        self._has_files = False

    def _files(self) -> list[Path]:
        return sorted(self._folder.rglob("*tfevents*"))

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """See `Reader`."""
        found: list[Record] = []
        for path in self._files():
            self._has_files = True
            for step, tag, value in self._scalars(path):
                if self._held and self._held["step"] != step:
                    found.append(self._held)
                    self._held = {}
                self._held["step"] = step
                self._held[tag] = value
        if is_end and self._held:
            found.append(self._held)
            self._held = {}
        return found

    def _scalars(self, path: Path) -> Iterator[tuple[int, str, float]]:
        offset = self._offsets.get(path, 0)
        try:
            if path.stat().st_size < self._wanted.get(path, 0):
                return
            with open(path, "rb") as file:
                file.seek(offset)
                data = file.read()
        except OSError:
            return
        position = 0
        while len(data) >= position + 12:
            (size,) = struct.unpack_from("<Q", data, position)
            if size > _MAX_RECORD or len(data) < position + 16 + size:
                self._wanted[path] = offset + position + 16 + min(size, _MAX_RECORD)
                break
            yield from _of_event(data[position + 12 : position + 12 + size])
            position += 16 + size
        self._offsets[path] = offset + position

    def missing(self) -> str:
        """See `Reader`."""
        if not self._has_files:
            return f"no TensorBoard event file appeared in {self._folder}"
        return f"the event files in {self._folder} have no scalars"


def _of_event(data: bytes) -> Iterator[tuple[int, str, float]]:
    step, summaries = 0, []
    for number, value in _fields(data):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, scalar = _of_value(value)
                if scalar is not None:
                    yield step, tag, scalar


def _of_value(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes):
            (scalar,) = struct.unpack("<f", value)
        elif number == 8 and isinstance(value, bytes):
            scalar = _of_tensor(value)
    return tag, scalar


def _of_tensor(data: bytes) -> float | None:
    """A scalar: `dtype` (1), `tensor_content` (4), or the first of `float_val` (5) or `double_val` (6)."""
    kind, content = 0, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    wanted = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind)
    if wanted is None or len(content) != struct.calcsize(wanted):  # no number, or several
        return None
    (scalar,) = struct.unpack(wanted, content)
    return float(scalar)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers as ints, all else as bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            return
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, position
