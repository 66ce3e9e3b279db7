"""The number of combinations of a space's grids. Imports nothing of the user's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from raysweep.space.branches import switch_of
from raysweep.space.simplex import simplex_of
from raysweep.space.vocabulary import word_of


def grid_points(space: Mapping[str, Any], *, has_lattices: bool = False) -> int:
    """The number of combinations of a normalised space's grids; 1 without a grid. Imports nothing.

    `has_lattices`: whether the points of a simplex with a step are walked, too.
    """
    branches = switch_of(space)
    if branches is not None:
        points = [grid_points({"": item}, has_lattices=has_lattices) for item in branches.values()]
        return sum(points) if "grid_search" in space else max(points)
    if len(space) == 1 and isinstance(space.get("grid_search"), list):
        return len(space["grid_search"])
    if word_of(space) == "simplex":
        return (simplex_of(space).cardinality or 1) if has_lattices else 1
    inside = (item for value in space.values() for item in (value if isinstance(value, list) else [value]))
    return math.prod(
        grid_points(item, has_lattices=has_lattices) for item in inside if isinstance(item, dict)
    )


def without_steps(node: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of simplexes without a step in a normalised space."""
    word = word_of(node)
    if word == "simplex":
        return [] if "step" in node else [path]
    if word is not None and switch_of(node) is None:
        return []
    items = node[word] if word is not None else node
    pairs = items.items() if isinstance(items, dict) else enumerate(items) if isinstance(items, list) else ()
    return [found for key, item in pairs for found in without_steps(item, (*path, str(key)))]
