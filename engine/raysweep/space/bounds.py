"""The numbers that a numeric domain of a search space is given: its bounds, mean, deviation and steps."""

from __future__ import annotations

import math
from typing import Any

from raysweep.documents.json_values import unwrap_number
from raysweep.documents.validation import Path, Problem, show
from raysweep.space.domains import grid_index

NUMERIC: dict[str, tuple[str, ...]] = {
    "uniform": ("lower", "upper"),
    "quniform": ("lower", "upper", "q"),
    "loguniform": ("lower", "upper"),
    "qloguniform": ("lower", "upper", "q"),
    "randn": ("mean", "sd"),
    "qrandn": ("mean", "sd", "q"),
    "randint": ("lower", "upper"),
    "qrandint": ("lower", "upper", "q"),
    "lograndint": ("lower", "upper"),
    "qlograndint": ("lower", "upper", "q"),
}
WHOLE = ("randint", "qrandint", "lograndint", "qlograndint")


def read_numbers(word: str, argument: Any, path: Path) -> list[int | float]:
    """The arguments of a numeric domain, checked. Raises Problem."""
    names = NUMERIC[word]
    if word == "randn" and isinstance(argument, list | tuple) and len(argument) < 2:
        argument = [*argument, *(0.0, 1.0)[len(argument) :]]
    if not isinstance(argument, list | tuple) or len(argument) != len(names):
        raise Problem(
            f"takes {len(names)} numbers, got {show(argument)}",
            f'write {{"{word}": [{", ".join(names)}]}}',
            path,
        )
    numbers = [_number(word, name, value, path) for name, value in zip(names, argument, strict=True)]
    if names[0] == "lower":
        _check_bounds(word, numbers, path)
    elif numbers[1] <= 0:
        raise Problem(f"sd must be > 0, got {numbers[1]}", "give a positive standard deviation", path)
    if "q" in names and numbers[2] <= 0:
        raise Problem(
            f"q must be > 0, got {numbers[2]}", f"drop the q and write {word[1:]!r}, or give a step", path
        )
    if "q" in names and names[0] == "lower":
        _check_steps(word, numbers, path)
    return numbers


def _number(word: str, name: str, value: Any, path: Path) -> int | float:
    value = unwrap_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem(f"{name} must be a number, got {show(value)}", "write a number, without quotes", path)
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        raise Problem(f"{name} is too large: {show(value)}", "stay below 2**53", path) from None
    if not is_finite:
        raise Problem(f"{name} must be finite, got {value}", "give a finite number", path)
    if word in WHOLE and value != int(value):
        raise Problem(
            f"{name} must be a whole number, got {value}",
            f"write {round(value)}, or use a float domain",
            path,
        )
    # 1.0 and 1 say the same here; one spelling makes equal spaces equal.
    whole = int(value) if value == int(value) and abs(value) < 2**53 else value
    if word in WHOLE and abs(value) >= 2**53:
        raise Problem(f"{name} is too large: {show(value)}", "stay below 2**53", path)
    return whole if isinstance(whole, int) and abs(whole) < 2**53 else float(value)


def _check_bounds(word: str, numbers: list[int | float], path: Path) -> None:
    lower, upper = numbers[:2]
    if lower > upper:
        raise Problem(
            f"lower bound {lower} is above upper bound {upper}", f"swap them: [{upper}, {lower}]", path
        )
    if "log" in word and lower <= 0:
        need = ">= 1" if word in WHOLE else "> 0"
        raise Problem(
            f"lower bound must be {need} for {word}, got {lower}", "raise it, or drop the log", path
        )
    is_exclusive = word in WHOLE and (len(numbers) == 2 or numbers[2] == 1)
    if is_exclusive and lower == upper:
        raise Problem(
            f"no whole number in [{lower}, {upper}), as the upper bound is excluded",
            f"write [{lower}, {upper + 1}]",
            path,
        )
    if not math.isfinite(float(upper) - float(lower)):
        raise Problem("the range is too wide for a float", "narrow the bounds", path)


def _check_steps(word: str, numbers: list[int | float], path: Path) -> None:
    lower, upper, q = numbers
    if not math.isfinite(max(abs(lower), abs(upper)) / q):
        raise Problem(f"q={q} is too small for bounds [{lower}, {upper}]", "make q larger", path)
    first, last = grid_index(lower, q, is_lower=True), grid_index(upper, q, is_lower=False)
    if last < first:
        raise Problem(
            f"no multiple of q={q} in [{lower}, {upper}]", "widen the bounds, or make q smaller", path
        )
    if word in WHOLE:
        return
    for bound in (lower, upper):
        if not math.isclose(bound / q, round(bound / q)):
            raise Problem(
                f"bound {bound} is not a multiple of q={q}",
                f"write [{_neat(first * q)}, {_neat(last * q)}, {q}]",
                path,
            )


def _neat(value: float) -> float:
    return float(f"{value:.12g}")
