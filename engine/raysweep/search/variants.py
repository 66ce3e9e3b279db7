"""Random and grid search: Ray Tune's variants, without repeats.

Semantics of `ray.tune.search.basic_variant.BasicVariantGenerator`: every sample walks the whole product
of the `grid_search` leaves, and draws the other leaves anew for each of its points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from raysweep.search.base import TrialEnd, derived_rng
from raysweep.search.cells import (
    Cell,
    Cells,
    Leaf,
    LeafPath,
    NoneLeftError,
    cells_of,
    draw_unused,
    exhausted_note,
    leaf_value,
    left_over_note,
    total_of,
    widened,
)
from raysweep.search.configview import with_views
from raysweep.spec.domains import Grid, SampleFrom
from raysweep.spec.relations import Relation
from raysweep.spec.space import Space

ATTEMPTS = 32
"""How many draws look for an unused config before the unused ones are counted off."""


class VariantSearcher:
    """Random search over a grid.

    `ask(n)` depends on the seed and n; in a discrete space also on earlier asks.
    Where all leaves but the grid's are discrete, no two trials of a grid point get the same values while
    others are left, and the search ends with the last one (`note` says so). Leaves of a grid alone repeat
    `num_samples` times, as in Ray Tune: repeats are then what was asked for.

    Args:
        space: the parsed search space.
        num_samples: how many samples of each point of the grid; None: without an end.
        seed: the seed of the sweep.
    """

    is_adaptive = False

    def __init__(self, space: Space, num_samples: int | None, seed: int) -> None:
        self._space = with_views(space)
        self._seed = seed
        self._grid = _grid_leaves(self._space)
        self._random: list[Leaf] = [leaf for leaf in self._space.searched if not isinstance(leaf[1], Grid)]
        # The points of the grid that satisfy `where`, as far as that does not look at what is drawn.
        self._kept = self._grid_points(math.prod(len(domain.values) for _, domain in self._grid))
        self._points = len(self._kept)
        self._num_samples = num_samples
        has_functions = any(isinstance(domain, SampleFrom) for _, domain in self._space.leaves)
        self._cells: Cells | None = None if has_functions else cells_of(self._random)
        size = None if self._cells is None else self._cells.size
        rounds = total_of(num_samples, size)
        self.total: int | None = None if rounds is None else rounds * self._points
        self.note: str | None = None if size is None else exhausted_note(size, num_samples)
        # Discrete spaces only: what each trial got, and per grid point what is used.
        self._cell_of: dict[int, Cell] = {}
        self._used: dict[int, set[Cell]] = {}

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last sample."""
        if self.total is not None and number >= self.total:
            return None
        grid = self._grid_values(self._kept[number % self._points])
        if self._cells is None:
            rng = derived_rng(self._seed, number)
            values = self._space.draw(
                lambda _: grid | {path: domain.sample(rng) for path, domain in self._random}
            )
            return self._space.build(values)
        try:
            return self._space.build(grid | dict(self._unused_values(self._cells, number, grid)))
        except NoneLeftError:
            used = self._used.get(number % self._points)
            if not used:
                raise self._space.unsatisfied() from None
            self.note = left_over_note(len(used), self._num_samples)
            return None

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of what a discrete trial used. Nothing is kept for continuous spaces."""
        if self._cells is None:
            return
        try:
            cell = self._cells.cell({path: leaf_value(config, path) for path, _ in self._random})
        except (ValueError, TypeError, KeyError, IndexError):
            return  # outside the space: it cannot be drawn again
        self._take(number, cell)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Do nothing: results do not change what is asked for."""

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Do nothing, as `tell`."""

    def _grid_values(self, point: int) -> dict[LeafPath, Any]:
        values: dict[LeafPath, Any] = {}
        for path, domain in self._grid:  # the first path varies fastest
            point, index = divmod(point, len(domain.values))
            values[path] = domain.values[index]
        return values

    def _grid_points(self, count: int) -> Sequence[int]:
        drawn = [path for path, _ in self._random]
        relations = [each for each in self._space.where if not any(_touches(each, path) for path in drawn)]
        if not relations:
            return range(count)
        space = Space(leaves=self._space.leaves, template=self._space.template, where=tuple(relations))
        # These relations do not look at them.
        others = {path: domain.sample(Random(0)) for path, domain in self._random}
        kept = [point for point in range(count) if space.allows(others | self._grid_values(point))]
        if not kept:
            raise self._space.unsatisfied()
        return kept

    def _unused_values(
        self, cells: Cells, number: int, grid: Mapping[LeafPath, Any]
    ) -> Mapping[LeafPath, Any]:
        known = self._cell_of.get(number)
        if known is not None:
            return cells.values(known)
        rng = derived_rng(self._seed, number)

        def draw(attempt: int) -> dict[LeafPath, Any]:
            return {path: widened(domain, attempt).sample(rng) for path, domain in self._random}

        used = self._used.get(number % self._points, set())
        # Past half of the cells, most draws would be repeats.
        is_sparse = cells.size is None or 2 * len(used) < cells.size
        attempts = ATTEMPTS if is_sparse else 0
        is_bound = bool(self._space.where)
        allows = (lambda values: self._space.allows({**grid, **values})) if is_bound else None
        cell, values = draw_unused(cells, used, draw, rng, attempts, allows)
        self._take(number, cell)
        return values

    def _take(self, number: int, cell: Cell) -> None:
        self._cell_of[number] = cell
        self._used.setdefault(number % self._points, set()).add(cell)


def _touches(relation: Relation, path: LeafPath) -> bool:
    """Whether a relation looks at a leaf, at a part of it, or at what holds it."""
    for name in relation.names:
        parts = tuple(map(str, name))
        common = min(len(parts), len(path))
        if parts[:common] == path[:common]:
            return True
    return False


def _grid_leaves(space: Space) -> list[tuple[LeafPath, Grid]]:
    """Return the grid's leaves in Ray Tune's order: sorted by path, places in lists as numbers."""

    def order(leaf: tuple[LeafPath, Grid]) -> list[str | int]:
        node: Any = space.template
        keys: list[str | int] = []
        for part in leaf[0]:
            keys.append(int(part) if isinstance(node, list) else part)
            node = node[keys[-1]]
        return keys

    return sorted(((path, domain) for path, domain in space.leaves if isinstance(domain, Grid)), key=order)
