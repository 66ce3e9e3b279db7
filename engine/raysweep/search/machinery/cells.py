"""Discrete spaces as countable cells, so that no config is drawn twice while another is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, Protocol

import orjson

from raysweep.space.branches import LeafPath as LeafPath
from raysweep.space.branches import Parents, Tree, is_reached
from raysweep.space.domains import Choice, Domain, Float, Integer, Normal, grid_index
from raysweep.space.parsed import MAX_DRAWS
from raysweep.space.simplex import Simplex

Leaf = tuple[LeafPath, Domain]
Cell = tuple[int | None, ...]
"""One config: per leaf, the index of its value; None where the config does not have it."""
Allows = Callable[[Mapping[LeafPath, Any]], bool]
"""True if values of the leaves satisfy the space's relations."""
COUNTABLE = 100_000
"""Up to this size a space is searched whole for a cell that satisfies relations; a larger one is drawn."""


class NoneLeftError(ValueError):
    """No cell is left that is unused and satisfies the relations."""


class Codec(Protocol):
    """The values of one discrete domain, numbered."""

    size: int | None
    """The number of values; None for a countable infinity (indices are then any whole numbers)."""

    def index(self, value: Any) -> int:
        """Return the number of a value. Raises ValueError or TypeError for a value outside the domain."""
        ...

    def value(self, index: int) -> Any:
        """Return the value that `Domain.sample` gives for this number."""
        ...


class _ChoiceCodec:
    """Choices without repetitions, told apart as JSON text (1, 1.0 and true are three values)."""

    def __init__(self, domain: Choice) -> None:
        unique = {text(value): value for value in domain.values}
        self._values = list(unique.values())
        self._index = {text: index for index, text in enumerate(unique)}
        self.size: int | None = len(unique)

    def index(self, value: Any) -> int:
        found = self._index.get(text(value))
        if found is None:
            raise ValueError(f"{value!r} is none of the {self.size} choices")
        return found

    def value(self, index: int) -> Any:
        return self._values[index]


class _IntegerCodec:
    def __init__(self, domain: Integer) -> None:
        self._low, self._step = domain.low, domain.step
        self.size: int | None = domain.cardinality

    def index(self, value: Any) -> int:
        return (int(value) - self._low) // self._step

    def value(self, index: int) -> int:
        return self._low + index * self._step


class _FloatCodec:
    """The multiples of q between two bounds, with the rounding of `Float.sample`."""

    def __init__(self, domain: Float, q: float) -> None:
        self._domain, self._q = domain, q
        self._first = grid_index(domain.lower, q, is_lower=True)
        self.size: int | None = domain.cardinality

    def index(self, value: Any) -> int:
        return round(float(value) / self._q) - self._first

    def value(self, index: int) -> float:
        return min(max((self._first + index) * self._q, self._domain.lower), self._domain.upper)


class _NormalCodec:
    def __init__(self, q: float) -> None:
        self._q = q
        self.size: int | None = None

    def index(self, value: Any) -> int:
        return round(float(value) / self._q)

    def value(self, index: int) -> float:
        return index * self._q


class _SimplexCodec:
    """The points of a simplex with a step."""

    def __init__(self, domain: Simplex) -> None:
        self._domain = domain
        self.size: int | None = domain.cardinality

    def index(self, value: Any) -> int:
        return self._domain.index(value)

    def value(self, index: int) -> dict[str, float]:
        return self._domain.at(index)


def codec(domain: Domain) -> Codec | None:
    """Return the numbering of a domain's values; None where they cannot be counted."""
    if isinstance(domain, Choice):
        return _ChoiceCodec(domain)
    if isinstance(domain, Integer):
        return _IntegerCodec(domain)
    if isinstance(domain, Float) and domain.q is not None:
        return _FloatCodec(domain, domain.q)
    if isinstance(domain, Normal) and domain.q is not None:
        return _NormalCodec(domain.q)
    if isinstance(domain, Simplex) and domain.step is not None:
        return _SimplexCodec(domain)
    return None


class Cells:
    """The cells of a space whose every leaf is discrete."""

    def __init__(self, leaves: Sequence[Leaf], codecs: Sequence[Codec], parents: Parents) -> None:
        self._leaves = [(path, numbering) for (path, _), numbering in zip(leaves, codecs, strict=True)]
        paths = {path for path, _ in leaves}
        self._parents = {
            path: parent for path, parent in parents.items() if path in paths and parent[0] in paths
        }
        sizes = {path: numbering.size for path, numbering in self._leaves}
        names = {path: domain.values for path, domain in leaves if isinstance(domain, Choice)}
        self._tree = Tree(sizes, self._parents, names)
        self.size: int | None = self._tree.size

    def cell(self, values: Mapping[LeafPath, Any]) -> Cell:
        """Return the cell that leaf values fall into. Raises ValueError or TypeError outside the space."""
        if not self._parents:
            return tuple(numbering.index(values[path]) for path, numbering in self._leaves)
        return tuple(
            numbering.index(values[path]) if is_reached(path, values, self._parents) else None
            for path, numbering in self._leaves
        )

    def values(self, cell: Cell) -> dict[LeafPath, Any]:
        """Return the leaf values of a cell."""
        pairs = zip(self._leaves, cell, strict=True)
        return {path: numbering.value(i) for (path, numbering), i in pairs if i is not None}

    def unused(self, used: set[Cell], rng: Random, allows: Allows | None = None) -> Cell:
        """Return a random cell that is not `used`, and whose values are allowed. The space must be finite.

        Raises:
            NoneLeftError: there is none.
        """
        size = self.size or 0
        rank, stride = rng.randrange(size), rng.randrange(size) or 1
        while math.gcd(stride, size) > 1:  # a stride without a common divisor comes by every cell once
            stride += 1
        for _ in range(size):
            cell = self._unranked(rank)
            if cell not in used and (allows is None or allows(self.values(cell))):
                return cell
            rank = (rank + stride) % size
        raise NoneLeftError(f"all {size} cells are used, or not allowed")

    def at(self, rank: int) -> dict[LeafPath, Any]:
        """Return the leaf values of the cell of this rank, below `size`. The space must be finite."""
        return self.values(self._unranked(rank))

    def _unranked(self, rank: int) -> Cell:
        indices = self._tree.at(rank)
        return tuple(indices.get(path) for path, _ in self._leaves)


def cells_of(leaves: Sequence[Leaf], parents: Parents) -> Cells | None:
    """Return the cells of these leaves; None if one of them is continuous, or if there are none."""
    codecs = [numbering for _, domain in leaves if (numbering := codec(domain)) is not None]
    return Cells(leaves, codecs, parents) if leaves and len(codecs) == len(leaves) else None


def draw_unused(
    cells: Cells,
    used: set[Cell],
    draw: Callable[[int], Mapping[LeafPath, Any]],
    rng: Random,
    attempts: int,
    allows: Allows | None = None,
) -> tuple[Cell, Mapping[LeafPath, Any]]:
    """Return a cell that is not used and its values.

    `draw(attempt)` is tried `attempts` times (in an infinite space until it finds one: `widened` sees to
    that), then the unused cells are counted off. With `allows`, a space that is too large for
    that is drawn from `MAX_DRAWS` times.

    Raises:
        NoneLeftError: none was found that is allowed.
    """
    is_large = allows is not None and (cells.size is None or cells.size > COUNTABLE)
    for attempt in range(MAX_DRAWS) if is_large else count():
        if attempt >= attempts and cells.size is not None and not is_large:
            break
        values = draw(attempt)
        cell = cells.cell(values)
        if cell not in used and (allows is None or allows(values)):
            return cell, values
    if is_large:
        raise NoneLeftError(f"of {MAX_DRAWS} cells that were drawn, all are used, or not allowed")
    cell = cells.unused(used, rng, allows)
    return cell, cells.values(cell)


def widened(domain: Domain, attempt: int) -> Domain:
    """Return the domain to draw from at the given attempt to find an unused cell.

    The tails of a quantised normal distribution hold unused values without end, but are never hit: its
    spread doubles every eight attempts.
    """
    if attempt >= 8 and isinstance(domain, Normal):
        return Normal(mean=domain.mean, sd=domain.sd * 2.0 ** (attempt // 8), q=domain.q)
    return domain


def total_of(num_samples: int | None, size: int | None) -> int | None:
    """Return how many configs there will be, of a space of `size`; None (twice): without an end."""
    return min((count for count in (num_samples, size) if count is not None), default=None)


def exhausted_note(size: int, num_samples: int | None) -> str | None:
    """Return what the user is told where a space has fewer configs than samples were asked for."""
    if num_samples is None:
        return f"the space has only {size} different configs: each is tried once"
    if size >= num_samples:
        return None
    return (
        f"num_samples is {num_samples}, but the space has only {size} different configs: each is tried once"
    )


def left_over_note(count: int, num_samples: int | None) -> str:
    """Return what the user is told where fewer configs satisfy `where` than samples were asked for."""
    if num_samples is None:
        return f"no more than {count} configs satisfy where: each is tried once"
    return f"num_samples is {num_samples}, but no more than {count} configs satisfy where: each is tried once"


def fewer_note(points: int, count: int, num_samples: int, total: int) -> str:
    """Return what the user is told where some points of a grid have fewer configs that satisfy `where`."""
    where = f"at {points} of {count} points of the grid fewer configs satisfy where"
    return f"num_samples is {num_samples}, but {where}: there are {total} trials in all"


def text(value: Any) -> bytes:
    """A value as what is the same for equal ones; 1, 1.0 and true are three."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
