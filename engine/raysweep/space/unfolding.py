"""A space whose simplexes are coordinates: what a search sees that computes with single numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from raysweep.space.branches import Branches, LeafPath
from raysweep.space.domains import Float
from raysweep.space.parsed import Space, leaves_of
from raysweep.space.simplex import Simplex

_COORDINATE = Float(lower=0.0, upper=1.0)


class Unfolding:
    """A space in which each simplex of n parts is n - 1 numbers from 0 to 1, and the way there and back.

    The coordinates have the paths of the parts but the last.

    Args:
        space: the parsed search space.
    """

    def __init__(self, space: Space) -> None:
        self._simplexes = {path: domain for path, domain in space.leaves if isinstance(domain, Simplex)}
        self._paths = {
            path: [(*path, part) for part in domain.parts[:-1]] for path, domain in self._simplexes.items()
        }
        self._coordinates = {each for paths in self._paths.values() for each in paths}
        self.space = with_simplexes(space, lambda each: dict.fromkeys(each.parts[:-1], _COORDINATE))

    @property
    def is_plain(self) -> bool:
        """True if there is no simplex."""
        return not self._simplexes

    def to_places(self, values: Mapping[LeafPath, Any]) -> dict[LeafPath, Any]:
        """Values of the given space as values of `space`. Raises ValueError for what is no point."""
        found: dict[LeafPath, Any] = {}
        for path, value in values.items():
            simplex = self._simplexes.get(path)
            if simplex is None:
                found[path] = value
            else:
                found |= zip(self._paths[path], simplex.places(value), strict=True)
        return found

    def to_values(self, places: Mapping[LeafPath, Any]) -> dict[LeafPath, Any]:
        """The other way. A simplex that not all coordinates are given of is left out."""
        found = {path: value for path, value in places.items() if path not in self._coordinates}
        for path, simplex in self._simplexes.items():
            if all(each in places for each in self._paths[path]):
                found[path] = simplex.from_places([places[each] for each in self._paths[path]])
        return found

    def folded(self, paths: frozenset[LeafPath]) -> frozenset[LeafPath]:
        """The paths of the given space of which these are in `space`."""
        whole = {path for path, inside in self._paths.items() if paths.issuperset(inside)}
        return frozenset(paths - self._coordinates | whole)


def with_simplexes(space: Space, make: Callable[[Simplex], Any]) -> Space:
    """The same space with something else in place of each simplex: a domain, or a mapping of domains."""

    def changed(node: Any) -> Any:
        if isinstance(node, Simplex):
            return make(node)
        if isinstance(node, Branches):
            return Branches(domain=node.domain, nodes=changed(dict(node.nodes)))
        if isinstance(node, dict):
            return {key: changed(item) for key, item in node.items()}
        return [changed(item) for item in node] if isinstance(node, list) else node

    if not any(isinstance(domain, Simplex) for _, domain in space.leaves):
        return space
    template = changed(space.template)
    return replace(space, leaves=tuple(leaves_of(template)), template=template)
