"""Random and grid search: Ray Tune's variants, without repeats.

Semantics of `ray.tune.search.basic_variant.BasicVariantGenerator`: every sample walks the whole product
of the `grid_search` leaves, and draws the other leaves anew for each of its points.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

from raysweep.search.base import TrialEnd, derived_rng, derived_seed
from raysweep.search.cells import (
    Cell,
    Cells,
    Leaf,
    LeafPath,
    NoneLeftError,
    cells_of,
    draw_unused,
    exhausted_note,
    left_over_note,
    total_of,
    widened,
)
from raysweep.search.configview import with_views
from raysweep.spec.branches import Branches, Tree
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
        self._grid = dict(_grid_leaves(self._space))
        self._random: list[Leaf] = [leaf for leaf in self._space.searched if not isinstance(leaf[1], Grid)]
        names = {path: domain.values for path, domain in self._grid.items()}
        self._tree = Tree({path: len(values) for path, values in names.items()}, space.parents, names)
        # The points of the grid that satisfy `where`, as far as that does not look at what is drawn.
        self._kept = self._grid_points(self._tree.size or 1)
        self._num_samples = num_samples
        self._has_functions = any(isinstance(domain, SampleFrom) for _, domain in self._space.leaves)
        self._cells_by_leaves: dict[tuple[LeafPath, ...], Cells | None] = {}
        self._rounds = Rounds(self._kept, num_samples, self._sizes())
        self.total: int | None = self._rounds.total
        self.note: str | None = self._rounds.note
        # Where there is no grid, as at each of its points.
        self._cells = None if self._grid else self._cells_at({})
        self._rng = Random(0)
        # Discrete spaces only: what each trial got, and per grid point what is used.
        self._cell_of: dict[int, Cell] = {}
        self._used: dict[int, set[Cell]] = {}

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last sample."""
        if self.total is not None and number >= self.total:
            return None
        point = self._rounds.point(number)
        grid = self._grid_values(point) if self._grid else {}
        cells = self._cells_at(grid) if self._grid else self._cells
        if cells is None:
            # The same as `derived_rng`, which seeds twice; nobody keeps it.
            rng = self._rng
            rng.seed(derived_seed(self._seed, number))
            values = self._space.draw(
                lambda _: grid | {path: domain.sample(rng) for path, domain in self._random}
            )
            return self._space.build(values)
        try:
            return self._space.build(grid | dict(self._unused_values(cells, number, point, grid)))
        except NoneLeftError:
            used = self._used.get(point)
            if not used:
                raise self._space.unsatisfied() from None
            self.note = left_over_note(len(used), self._num_samples)
            return None

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of what a discrete trial used. Nothing is kept for continuous spaces."""
        if self.total is not None and number >= self.total:
            return
        point = self._rounds.point(number)
        cells = self._cells_at(self._grid_values(point))
        if cells is None:
            return
        try:
            cell = cells.cell(self._space.read(config))
        except (ValueError, TypeError, KeyError, IndexError):
            return  # outside the space: it cannot be drawn again
        self._take(number, point, cell)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Do nothing: results do not change what is asked for."""

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Do nothing, as `tell`."""

    def _grid_values(self, point: int) -> dict[LeafPath, Any]:
        indices = self._tree.at(point)  # the first path varies fastest
        return {path: self._grid[path].values[index] for path, index in indices.items()}

    def _cells_at(self, grid: Mapping[LeafPath, Any]) -> Cells | None:
        """The cells of what is drawn at a point of the grid; None where they cannot be counted."""
        if self._has_functions:
            return None
        leaves = [leaf for leaf in self._random if self._space.is_reached(leaf[0], grid)]
        key = tuple(path for path, _ in leaves)
        if key not in self._cells_by_leaves:
            self._cells_by_leaves[key] = cells_of(leaves, self._space.parents)
        return self._cells_by_leaves[key]

    def _sizes(self) -> Sequence[int | None]:
        """How many cells each point of the grid has; one number where all have the same."""
        has_grid_of_branches = any(path in self._space.switches for path in self._grid)
        points = self._kept if has_grid_of_branches else self._kept[:1]
        found = (self._cells_at(self._grid_values(point)) for point in points)
        return [None if cells is None else cells.size for cells in found]

    def _grid_points(self, count: int) -> Sequence[int]:
        drawn = [path for path, _ in self._random]
        switches = self._space.switches
        relations = [
            each for each in self._space.where if not any(_touches(each, path, switches) for path in drawn)
        ]
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
        self, cells: Cells, number: int, point: int, grid: Mapping[LeafPath, Any]
    ) -> Mapping[LeafPath, Any]:
        known = self._cell_of.get(number)
        if known is not None:
            return cells.values(known)
        rng = derived_rng(self._seed, number)

        def draw(attempt: int) -> dict[LeafPath, Any]:
            return {path: widened(domain, attempt).sample(rng) for path, domain in self._random}

        used = self._used.get(point, set())
        # Past half of the cells, most draws would be repeats.
        is_sparse = cells.size is None or 2 * len(used) < cells.size
        attempts = ATTEMPTS if is_sparse else 0
        is_bound = bool(self._space.where)
        allows = (lambda values: self._space.allows({**grid, **values})) if is_bound else None
        cell, values = draw_unused(cells, used, draw, rng, attempts, allows)
        self._take(number, point, cell)
        return values

    def _take(self, number: int, point: int, cell: Cell) -> None:
        self._cell_of[number] = cell
        self._used.setdefault(point, set()).add(cell)


class Rounds:
    """Which point of the grid each trial is at: all in turn, those without cells that are left passed over.

    Args:
        points: the points of the grid.
        num_samples: how many rounds at most; None: without an end.
        sizes: how many cells each point has (None: no end of them), or one number for all.
    """

    def __init__(self, points: Sequence[int], num_samples: int | None, sizes: Sequence[int | None]) -> None:
        sizes = sizes if len(sizes) == len(points) else [sizes[0]]
        limits = [total_of(num_samples, size) for size in sizes]
        ends = sorted({limit for limit in limits if limit is not None})
        # From which trial on which points are left, until the next ones of them are done.
        self._stretches: list[tuple[int, Sequence[int]]] = []
        first = done = 0
        for end in [*ends, None]:
            left = points
            if len(limits) > 1:
                pairs = zip(points, limits, strict=True)
                left = [point for point, limit in pairs if limit is None or limit > done]
            elif limits[0] is not None and limits[0] <= done:
                left = []
            self._stretches.append((first, left))
            first, done = (first, done) if end is None else (first + (end - done) * len(left), end)
        self.total: int | None = None if None in limits else first
        known = [size for size in sizes if size is not None]
        self.note: str | None = exhausted_note(min(known), num_samples) if known else None
        if self.note is not None and len(set(sizes)) > 1:
            self.note = "some points of the grid have fewer configs than samples: each is tried once"

    def point(self, number: int) -> int:
        """Return the point of trial `number`, which is below `total`."""
        for first, points in reversed(self._stretches):
            if first <= number and points:
                return points[(number - first) % len(points)]
        raise ValueError(f"there is no trial {number}")


def _touches(relation: Relation, path: LeafPath, switches: Collection[LeafPath]) -> bool:
    """Whether a relation looks at a leaf, at a part of it, or at what holds it."""
    for name in relation.names:
        parts = tuple(map(str, name))
        if parts in switches and parts != path:
            continue  # it looks at the name of the branch, not into it
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
            node = node.nodes if isinstance(node, Branches) else node
            keys.append(int(part) if isinstance(node, list) else part)
            node = node[keys[-1]]
        return keys

    return sorted(((path, domain) for path, domain in space.leaves if isinstance(domain, Grid)), key=order)
