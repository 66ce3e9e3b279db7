"""Choices between numbers that rise or fall, as their places: a model then knows what is near to what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeGuard

from raysweep.search.machinery.cells import LeafPath, codec
from raysweep.space.domains import Choice, Domain, Integer
from raysweep.space.parsed import Space


class Ordered:
    """A space in which a choice between numbers in order is a whole number, and the way there and back.

    Args:
        space: the parsed search space, without `grid_search`.
    """

    def __init__(self, space: Space) -> None:
        found = {path: domain for path, domain in space.leaves if _is_in_order(domain)}
        places = {path: Integer(lower=0, upper=len(domain.values)) for path, domain in found.items()}
        leaves = tuple((path, places.get(path, domain)) for path, domain in space.leaves)
        self._codecs = {path: codec(domain) for path, domain in found.items()}
        self.space = replace(space, leaves=leaves) if found else space

    def to_places(self, values: Mapping[LeafPath, Any]) -> dict[LeafPath, Any]:
        """Values of the given space as values of `space`. Raises ValueError for one that is no choice."""
        return {
            path: value if (numbers := self._codecs.get(path)) is None else numbers.index(value)
            for path, value in values.items()
        }

    def to_values(self, places: Mapping[LeafPath, Any]) -> dict[LeafPath, Any]:
        """The other way."""
        return {
            path: place if (numbers := self._codecs.get(path)) is None else numbers.value(place)
            for path, place in places.items()
        }


def _is_in_order(domain: Domain) -> TypeGuard[Choice]:
    if not isinstance(domain, Choice) or domain.cardinality == 1:
        return False
    values = domain.values
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return False
    return all(a < b for a, b in pairwise(values)) or all(a > b for a, b in pairwise(values))
