"""Metrics and configs as trackers want them: numbers by name, texts by dotted name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson
from pydantic import JsonValue

from raysweep.documents.json_values import leaves

ODD: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""The names in reports of numbers that JSON lacks."""
ITERATION: Final = "iteration"


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
    """The leaves of nested mappings by dotted name; an empty mapping has none.

    Where a name has a dot itself, `a.b` beside `a: {b: …}`, the second one is `a.b#2`.
    """
    found: dict[str, JsonValue] = {}
    for name, value in leaves(dict(values)):
        if value != {}:
            found[_free(name, found)] = value
    return found


def _free(name: str, taken: Mapping[str, object]) -> str:
    numbers = (f"{name}#{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbers if each not in taken)


def with_iteration(iteration: int, metrics: Mapping[str, JsonValue]) -> dict[str, float]:
    """The numbers of a report with its iteration; a metric of that name is `metrics.iteration`."""
    numbers = numbers_of(metrics)
    if ITERATION in numbers:
        numbers[_free(f"metrics.{ITERATION}", numbers)] = numbers.pop(ITERATION)
    return {ITERATION: iteration} | numbers
