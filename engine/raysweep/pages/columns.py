"""Columns of numbers and texts, as bytes in base64: what a page can show a hundred thousand rows of.

A column is `{"type": "f4" | "f8" | "u1" | "u2" | "u4", "data": base64}`, little-endian. One of texts has the
numbers of its `labels`; a number that is the count of labels stands for no value. A missing number is NaN.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from raysweep.numeric.shown import rounded
from raysweep.runs.reading.whole_sweep import fit_32_bits, number_of

MAX_LABELS: Final = 20_000
"""A column of texts tells so many apart; the rest are one, `…`."""
MAX_LABEL_CHARS: Final = 200
_EXACT_IN_F4: Final = 2**24
_CODES: Final = {"f": "f4", "d": "f8", "B": "u1", "H": "u2", "I": "u4"}

Column = dict[str, Any]


def encode(values: array[Any]) -> Column:
    """An array as it is."""
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return {"type": _CODES[values.typecode], "data": b64encode(values.tobytes()).decode()}


def numbers(values: Iterable[Any]) -> Column:
    """Numbers of 32 bits, or of 64 where there are some that these cannot hold; None is NaN.

    Of 32 bits they are rounded to the digits that are shown: so they are shown as anywhere else.
    """
    listed = list(values)
    found = [number_of(value) for value in listed]
    if not fit_32_bits(found) or any(type(n) is int and abs(n) > _EXACT_IN_F4 for n in listed):
        return encode(array("d", found))
    return encode(array("f", [rounded(value) for value in found]))


def whole(values: Iterable[int], most: int) -> Column:
    """Whole numbers from 0 to `most`, in as few bytes as they need."""
    return encode(array("B" if most < 2**8 else "H" if most < 2**16 else "I", values))


def texts(values: Iterable[Any]) -> Column:
    """Texts, truth values and whatever else is not a number; None is no value."""
    labels: dict[str, int] = {}
    places: list[int | None] = []
    for value in values:
        if value is None:
            places.append(None)
            continue
        label = show_label(value)
        if label not in labels and len(labels) >= MAX_LABELS:
            label = "…"
        places.append(labels.setdefault(label, len(labels)))
    count = len(labels)
    column = whole((count if place is None else place for place in places), count)
    return {**column, "labels": list(labels)}


def show_label(value: Any) -> str:
    """A value of a config as a short text: strings as they are, all else as JSON."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if len(text) <= MAX_LABEL_CHARS else f"{text[: MAX_LABEL_CHARS - 1]}…"


def is_number(value: Any) -> bool:
    """True if it is a number; truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_numbers(values: Sequence[Any]) -> bool:
    """True if there is a number, and nothing but numbers and None."""
    there = [value for value in values if value is not None]
    return bool(there) and all(map(is_number, there))
