"""The distance of configs, of whatever parameters: by their order, not by their scale."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, Final

from raysweep.documents.json_values import leaves

_ABSENT: Final = object()
Place = Mapping[str, Any]
"""Of a config: its parameters by their dotted names, numbers as places in an order, from 0 to 1."""


class Grid:
    """The order of each number among these configs.

    So a learning rate needs no logarithm, and one odd value makes no other ones neighbours.
    """

    def __init__(self, configs: Iterable[Mapping[str, Any]]) -> None:
        found: dict[str, list[float]] = {}
        for config in configs:
            for name, value in leaves(config):
                if _is_number(value):
                    found.setdefault(name, []).append(value)
        self._order = {name: sorted(values) for name, values in found.items()}

    def place(self, config: Mapping[str, Any]) -> Place:
        """The place of a config, also of one that is not among them."""
        return {name: self._place(name, value) for name, value in leaves(config)}

    def _place(self, name: str, value: Any) -> Any:
        order = self._order.get(name)
        if not order or not _is_number(value):
            return (value,)
        return (bisect_left(order, value) + bisect_right(order, value)) / (2 * len(order))


def apart(one: Place, other: Place) -> float:
    """The sum of the squared differences; 1 for what differs otherwise, or what one of them lacks."""
    names = sorted(one.keys() | other.keys())  # sums of floats depend on their order
    return sum(_difference(one.get(name, _ABSENT), other.get(name, _ABSENT)) for name in names)


def _difference(one: Any, other: Any) -> float:
    if isinstance(one, float) and isinstance(other, float):
        return (one - other) ** 2
    return float(one != other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
