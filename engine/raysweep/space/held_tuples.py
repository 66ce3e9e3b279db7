"""The parameters of a search space that have tuples among their values."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from raysweep.documents.tuples import has_tuple, marked
from raysweep.space.branches import LeafPath, switch_of
from raysweep.space.vocabulary import word_of


def tuples_of(space: Mapping[str, Any]) -> list[list[Any]]:
    """The tuples of a normalised space, as `raysweep.documents.tuples` restores them in a config."""
    return [found for key, node in space.items() for found in _held(node, (key,))]


def same_in_json(values: list[Any]) -> tuple[Any, Any] | None:
    """Two values of a choice that only a tuple tells apart: a stored config could mean both.

    Each value is looked at once.
    """
    if not any(map(has_tuple, values)):
        return None
    seen: dict[Hashable, Any] = {}
    for value in values:
        other = seen.setdefault(_frozen(value), value)
        if other is not value and other != value:
            return other, value
    return None


def _frozen(value: Any) -> Hashable:
    """A key that two values share whose JSON is equal."""
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _held(node: Any, path: LeafPath) -> Iterator[list[Any]]:
    branches = switch_of(node)
    if branches is None and (word := word_of(node)) is not None:
        if word in ("choice", "grid_search", "const"):
            values = [node[word]] if word == "const" else node[word]
            if held := [marked(value) for value in values if has_tuple(value)]:
                yield [list(path), held]
        return
    items = branches if branches is not None else node
    if isinstance(items, dict):
        for key, item in items.items():
            yield from _held(item, (*path, key))
    elif isinstance(items, list):
        for number, item in enumerate(items):
            yield from _held(item, (*path, str(number)))
