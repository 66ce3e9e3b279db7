"""Amounts of bytes as people write them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from raysweep.documents.validation import Problem, show

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTP]i?)?B(/s)?\s*")


def to_bytes(given: Any) -> Any:
    """A number of bytes, or one with a unit: `50GiB`, `1.5 TB`."""
    if not isinstance(given, str):
        return int(given) if isinstance(given, float) and given.is_integer() else given
    found = _read(given)
    if found is None or found[1]:
        raise Problem(f"{show(given)} is not an amount of bytes", 'write one such as "50GiB" or "500 MB"')
    return round(found[0])


def _to_rate(given: Any) -> Any:
    """A number of bytes, or a rate with its unit: `50MiB/s`, `1.5 GB/s`."""
    if not isinstance(given, str):
        return given
    found = _read(given)
    if found is None or not found[1]:
        raise Problem(f"{show(given)} is not a rate", 'write one such as "50MiB/s" or "1.5 GB/s"')
    return found[0]


def _read(text: str) -> tuple[float, bool] | None:
    """The number of bytes, and True if it is so many a second."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    number, prefix, is_rate = found.groups()
    base = 1024 if (prefix or "").endswith("i") else 1000
    power = " KMGTP".index(prefix[0].upper()) if prefix else 0
    return float(number) * base**power, is_rate is not None


Bytes = Annotated[int, BeforeValidator(to_bytes, json_schema_input_type=int | str)]
BytesPerSecond = Annotated[
    float,
    BeforeValidator(_to_rate, json_schema_input_type=float | str),
    Field(gt=0),
]
