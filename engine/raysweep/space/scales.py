"""Scales: the sizes at which trials run (`rows`, `params`, `tokens`), beside the parameters of the space.

A config has the values of its scale by their names, so the scale of a trial is what its config says. Proxy
scales stand in order, the smallest first; a size is the product of the values of a scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from raysweep.documents.validation import Problem, show
from raysweep.space.vocabulary import VOCABULARY

SHARE: Final = "share"
EXAMPLE: Final = "write such as {rows: 80000}"
_SUM_SLACK: Final = 1e-9
_TAKEN: Final = {"scale", "proxy", *VOCABULARY}
Scale = Mapping[str, float]


def read_scale(given: Any) -> dict[str, float]:
    """The values of a scale by name. Raises Problem."""
    if not isinstance(given, Mapping):
        raise Problem(f"expected names and sizes, got {show(given)}", EXAMPLE)
    for name, value in given.items():
        if not isinstance(name, str) or not name or "." in name or name in _TAKEN:
            raise Problem(f"{show(name)} cannot name a scale", "use another word, without dots, such as rows")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise Problem(f"expected a number > 0, got {show(value)}", "give the size, as 20000", (name,))
    return {name: _whole(value) for name, value in given.items()}


def _whole(value: float) -> float:
    """20000.0 as 20000: one spelling makes equal specs equal, and a number of rows is whole."""
    return int(value) if value == int(value) else value


def read_scales(given: Any) -> tuple[dict[str, float], ...]:
    """Proxy scales with their shares, the smallest first. Raises Problem."""
    if not isinstance(given, list | tuple):
        raise Problem(f"expected a list, got {show(given)}", "write [{rows: 20000}, {rows: 40000}]")
    found: list[dict[str, float]] = []
    for number, each in enumerate(given):
        try:
            found.append(read_scale(each))
            if not without_share(found[-1]):
                raise Problem("names no scale", EXAMPLE)
        except Problem as problem:
            raise Problem.of(problem.issues, (number,)) from None
    _check_alike(found)
    _check_shares(found)
    return tuple(sorted(found, key=lambda each: order_of(without_share(each))))


def _check_alike(found: Sequence[Scale]) -> None:
    seen: list[Scale] = []
    for number, each in enumerate(map(without_share, found)):
        if each.keys() != without_share(found[0]).keys():
            problem = f"has {', '.join(each)}, and the first scale {', '.join(without_share(found[0]))}"
            raise Problem(problem, "give all scales the same names", (number,))
        if each in seen:
            raise Problem(f"{show_scale(each)} is there twice", "leave one of them out", (number,))
        seen.append(each)


def _check_shares(found: Sequence[Scale]) -> None:
    given = [each[SHARE] for each in found if SHARE in each]
    total, is_whole = sum(given), len(given) == len(found)
    if total > 1 + _SUM_SLACK or (is_whole and found and total < 1 - _SUM_SLACK):
        raise Problem(f"the shares are {total:g} in all", "let them be 1 in all")
    if not is_whole and total > 1 - _SUM_SLACK:
        raise Problem(f"the shares are {total:g} in all, and one scale has none", "leave it a part of 1")


def without_share(scale: Scale) -> dict[str, float]:
    """The values of a proxy scale."""
    return {name: value for name, value in scale.items() if name != SHARE}


def shares_of(scales: Sequence[Scale]) -> tuple[float, ...]:
    """The part of the trials that each proxy scale gets: its share, or an equal part of the rest."""
    given = [each[SHARE] for each in scales if SHARE in each]
    rest = (1.0 - sum(given)) / max(len(scales) - len(given), 1)
    return tuple(each.get(SHARE, rest) for each in scales)


def counts_of(scales: Sequence[Scale], count: int) -> tuple[int, ...]:
    """The number of configs of each proxy scale; what rounding leaves goes to the largest parts."""
    exact = [share * count for share in shares_of(scales)]
    found = [int(each + _SUM_SLACK) for each in exact]
    order = sorted(range(len(found)), key=lambda place: (found[place] - exact[place], place))
    for place in order[: count - sum(found)]:
        found[place] += 1
    return tuple(found)


def order_of(scale: Scale) -> tuple[float, tuple[float, ...]]:
    """Sorts scales, the smallest first: by size, as a logarithm, then by values in the order of names."""
    return sum(map(math.log, scale.values())), tuple(scale[name] for name in sorted(scale))


def is_at(config: Mapping[str, Any], scale: Scale) -> bool:
    """True if a config has the values of a scale."""
    return all(config.get(name) == value for name, value in scale.items())


def place_of(config: Mapping[str, Any], scales: Iterable[Scale]) -> int | None:
    """The place of the scale that a config has; None: it has none of them."""
    return next((place for place, scale in enumerate(scales) if is_at(config, scale)), None)


def show_scale(scale: Scale) -> str:
    """`rows=20000, width=64`."""
    return ", ".join(f"{name}={value:.15g}" for name, value in scale.items())


_SIZE: Final = {"type": "number", "exclusiveMinimum": 0}
_SCHEMA: Final = {"type": "object", "additionalProperties": _SIZE}
ScaleField = Annotated[dict[str, int | float], BeforeValidator(read_scale), WithJsonSchema(_SCHEMA)]
ScalesField = Annotated[
    tuple[dict[str, int | float], ...],
    BeforeValidator(read_scales),
    WithJsonSchema({"type": "array", "items": {**_SCHEMA, "minProperties": 1}}),
]
