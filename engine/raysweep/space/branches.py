"""Conditional parts of a search space: branches, of which a config has one, and the tree that they make.

`{"model": {"choice": {"svm": {"c": …}, "forest": {"depth": …}}}}` gives `{"model": {"svm": {"c": 0.1}}}`: a
mapping with one key, the branch that was taken. Where a search looks at it, the choice is a parameter at
`model` whose values are the branches' names, and `model.svm.c` one that is there only with `svm`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raysweep.space.domains import Choice
from raysweep.space.vocabulary import LISTS, word_of

LeafPath = tuple[str, ...]
Parents = Mapping[LeafPath, tuple[LeafPath, str]]
"""For each leaf in a branch: where the nearest choice above it is, and which of its branches it needs."""
SWITCHES: Final = LISTS
"""The domains that can have branches in place of values."""


@dataclass(frozen=True, slots=True)
class Branches:
    """A choice between parts of a space; `domain` chooses by name, `nodes` are the parsed parts."""

    domain: Choice
    nodes: Mapping[str, Any]


def switch_of(node: Any) -> Mapping[str, Any] | None:
    """The branches of a node of a normalised space; None: it is no choice between branches."""
    word = word_of(node)
    if word in SWITCHES and isinstance(node[word], dict):
        branches: Mapping[str, Any] = node[word]
        return branches
    return None


def switch_paths(space: Mapping[str, Any]) -> frozenset[LeafPath]:
    """The paths of the choices between branches, in the configs of a normalised space. Imports nothing."""
    return frozenset(_switch_paths(space, ()))


def _switch_paths(node: Any, path: LeafPath) -> Iterator[LeafPath]:
    branches = switch_of(node)
    if branches is not None:
        yield path
    elif word_of(node) is not None:
        return
    items: Any = branches if branches is not None else node
    if isinstance(items, dict):
        for key, item in items.items():
            yield from _switch_paths(item, (*path, key))
    elif isinstance(items, list):
        for number, item in enumerate(items):
            yield from _switch_paths(item, (*path, str(number)))


def parents_of(node: Any) -> dict[LeafPath, tuple[LeafPath, str]]:
    """The leaves of a parsed space that are in a branch, and which it is."""
    return dict(_parents(node, (), None))


def _parents(
    node: Any, path: LeafPath, parent: tuple[LeafPath, str] | None
) -> Iterator[tuple[LeafPath, tuple[LeafPath, str]]]:
    if isinstance(node, dict):
        for key, item in node.items():
            yield from _parents(item, (*path, key), parent)
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from _parents(item, (*path, str(number)), parent)
    else:
        if parent is not None:
            yield path, parent
        if isinstance(node, Branches):
            for name, item in node.nodes.items():
                yield from _parents(item, (*path, name), (path, name))


def is_reached(path: LeafPath, values: Mapping[LeafPath, Any], parents: Parents) -> bool:
    """True if a config with these values has this leaf. Of a choice without a value, any branch is taken."""
    while (parent := parents.get(path)) is not None:
        switch, branch = parent
        if values.get(switch, branch) != branch:
            return False
        path = switch
    return True


def reached(values: Mapping[LeafPath, Any], parents: Parents) -> dict[LeafPath, Any]:
    """The values without those of leaves in branches that were not taken."""
    if not parents:
        return dict(values)
    return {path: value for path, value in values.items() if is_reached(path, values, parents)}


class Tree:
    """The combinations of leaves whose values can be counted, some of them in branches of others.

    Args:
        sizes: how many values each leaf has (None: no end of them), in the order in which they are counted.
        parents: which of them are in a branch of another. One whose choice is not among them is always there.
        names: the names of the branches of each choice, by the index of its value.
    """

    def __init__(
        self,
        sizes: Mapping[LeafPath, int | None],
        parents: Parents,
        names: Mapping[LeafPath, Sequence[str]],
    ) -> None:
        self._sizes = sizes
        self._names: dict[LeafPath, Sequence[str]] = {}
        self._groups: dict[tuple[LeafPath, str] | None, list[LeafPath]] = {None: []}
        for path in sizes:
            parent = parents.get(path)
            group = parent if parent is not None and parent[0] in sizes else None
            self._groups.setdefault(group, []).append(path)
            if group is not None:
                self._names[group[0]] = names[group[0]]
        self._counts: dict[LeafPath, int | None] = {}
        self._group_counts: dict[tuple[LeafPath, str] | None, int | None] = {}
        self.size: int | None = self._count_group(None)
        """The number of combinations; None: no end of them."""

    def at(self, rank: int) -> dict[LeafPath, int]:
        """The index of each leaf's value in the combination of this rank, below a finite `size`.

        The first leaf varies fastest. Leaves that it does not have are left out.
        """
        found: dict[LeafPath, int] = {}
        self._unrank(None, rank, found)
        return {path: found[path] for path in self._sizes if path in found}

    def _count_group(self, group: tuple[LeafPath, str] | None) -> int | None:
        counts = [self._count(path) for path in self._groups.get(group, ())]
        known = [count for count in counts if count is not None]
        size = math.prod(known) if len(known) == len(counts) else None
        self._group_counts[group] = size
        return size

    def _count(self, path: LeafPath) -> int | None:
        if path not in self._names:
            count = self._sizes[path]
        else:
            below = [self._count_group((path, name)) for name in self._names[path]]
            known = [each for each in below if each is not None]
            count = sum(known) if len(known) == len(below) else None
        self._counts[path] = count
        return count

    def _unrank(self, group: tuple[LeafPath, str] | None, rank: int, found: dict[LeafPath, int]) -> None:
        for path in self._groups.get(group, ()):
            rank, index = divmod(rank, self._counts[path] or 1)
            if path not in self._names:
                found[path] = index
                continue
            for number, name in enumerate(self._names[path]):
                below = self._group_counts[path, name] or 1
                if index < below:
                    found[path] = number
                    self._unrank((path, name), index, found)
                    break
                index -= below
