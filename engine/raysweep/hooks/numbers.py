"""Metrics and configs as trackers want them: numbers by name, texts by dotted name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson
from pydantic import JsonValue

from raysweep.documents.json_values import leaves

ODD: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""How reports write numbers that JSON has none for."""


def numbers_of(metrics: Mapping[str, JsonValue]) -> dict[str, float]:
    """The values that are numbers, by name; those inside a mapping have a dotted name."""
    found: dict[str, float] = {}
    for name, value in flat(metrics).items():
        if isinstance(value, str):
            if value in ODD:
                found[name] = ODD[value]
        elif isinstance(value, bool | int | float):
            found[name] = float(value)
    return found


def texts_of(config: Mapping[str, JsonValue]) -> dict[str, str]:
    """Each parameter as text, by dotted name."""
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in flat(config).items()
    }


def flat(values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The leaves of nested mappings by dotted name; an empty mapping has none."""
    return {name: value for name, value in leaves(dict(values)) if value != {}}
