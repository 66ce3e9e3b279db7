"""The figures of one model: the numbers that `evaluate` returned, checked.

| returned | rows or folds | slices |
|---|---|---|
| a number | that one | none |
| a list of numbers | each | none |
| a mapping of slices to one of these | those of `all`, else of all slices | each |

Arrays of NumPy, PyTorch and pandas count as lists. The cost grows with the number of figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import orjson
from pydantic import Field

from raysweep.errors import RaysweepError
from raysweep.outcome.record import Record
from raysweep.specs.judge import WHOLE

MAX_ROWS: Final = 1_000_000
MAX_SLICES: Final = 1_000
_SHAPES: Final = "a number, a list of numbers, or a mapping of slices to these"


class FiguresError(RaysweepError):
    """A result of `evaluate` that cannot be compared."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"evaluate {problem}; return {_SHAPES}")


class Figures(Record):
    """The figures of one model, and the bytes that they were measured on."""

    whole: tuple[float, ...]
    """By row or fold."""
    slices: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """By slice."""
    model: str = ""
    """The digest of the model's files."""


def read_figures(returned: Any, model: str = "") -> Figures:
    """The figures that `evaluate` returned. Raises: FiguresError.

    Args:
        returned: What it returned.
        model: The digest of the files that it was given.
    """
    if not isinstance(returned, Mapping):
        return Figures(whole=_numbers(returned, "returned"), model=model)
    if not returned:
        raise FiguresError("returned an empty mapping")
    if len(returned) > MAX_SLICES + 1:
        raise FiguresError(f"returned {len(returned)} slices, more than {MAX_SLICES}")
    for name in returned:
        if not isinstance(name, str) or not name:
            raise FiguresError(f"returned a slice named {name!r}, which is not text")
    found = {name: _numbers(returned[name], f"returned for {name!r}") for name in sorted(returned)}
    whole = found.pop(WHOLE, None) or tuple(chain.from_iterable(found.values()))
    if len(whole) > MAX_ROWS:
        raise FiguresError(f"returned {len(whole)} numbers, more than {MAX_ROWS}")
    return Figures(whole=whole, slices=found, model=model)


def decode_figures(text: bytes) -> Figures:
    """Stored figures. Raises: SpecError, FiguresError."""
    found = Figures.from_fields(orjson.loads(text))
    for name, figures in (("all", found.whole), *found.slices.items()):
        _numbers(figures, f"has stored for {name!r}")
    return found


def _numbers(given: Any, head: str) -> tuple[float, ...]:
    listed = given.tolist() if callable(getattr(given, "tolist", None)) else given
    if isinstance(listed, str | bytes) or not isinstance(listed, Sequence):
        return (_number(listed, head),)
    if not listed:
        raise FiguresError(f"{head} an empty list")
    if len(listed) > MAX_ROWS:
        raise FiguresError(f"{head} {len(listed)} numbers, more than {MAX_ROWS}")
    return tuple(_number(each, f"{head} as number {place}") for place, each in enumerate(listed, 1))


def _number(given: Any, head: str) -> float:
    value = given.item() if callable(getattr(given, "item", None)) else given
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FiguresError(f"{head} {_short(value)}, which is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FiguresError(f"{head} {number}, which is not finite")
    return number


def _short(value: Any) -> str:
    text = repr(value)
    kind = type(value).__name__
    return f"a {kind}" if len(text) > 60 or value is None else f"{text} (a {kind})"


def mean_of(figures: Iterable[float]) -> float:
    """The mean; of large numbers too."""
    numbers = tuple(figures)
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:
        return math.fsum(each / len(numbers) for each in numbers)
