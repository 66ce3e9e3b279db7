"""Random and grid search: Ray Tune's variants.

Semantics of `ray.tune.search.basic_variant.BasicVariantGenerator`: every sample walks the whole product
of the `grid_search` leaves, and draws the other leaves for each of its points, with replacement. With
`distinct` no config comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from raysweep.search.base import Searcher, SearchSetup, TrialEnd, derived_rng, derived_seed
from raysweep.search.machinery.beliefs import KEPT, Beliefs, is_turn
from raysweep.search.machinery.cells import (
    Cell,
    Cells,
    Leaf,
    LeafPath,
    NoneLeftError,
    cells_of,
    draw_unused,
    exhausted_note,
    fewer_note,
    left_over_note,
    text,
    total_of,
    widened,
)
from raysweep.search.machinery.config_view import with_views
from raysweep.search.options import SearchOptions
from raysweep.space.branches import Branches, Tree
from raysweep.space.domains import Grid, SampleFrom
from raysweep.space.expressions import Relation
from raysweep.space.parsed import Space
from raysweep.space.unfolding import with_simplexes

ATTEMPTS = 32
"""Draws that look for an unused config before the unused ones are counted off."""
Stretch = tuple[int, Sequence[int]]
"""A first trial, and the points of the grid that are in turn from it on."""


class VariantOptions(SearchOptions):
    """The options of random and of grid search."""

    metrics = "none"
    is_counted = True

    distinct: bool = False
    """Run no config twice: a space of fewer configs than samples then ends with its last config.

    Default: each sample is drawn by itself, as in Ray Tune, and may equal an earlier one.
    """

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        return VariantSearcher(setup.space, setup.num_samples, setup.seed, is_distinct=self.distinct)


class RandomOptions(VariantOptions):
    """Random search: samples are drawn with replacement, for each point of a grid if there is one."""

    takes_priors = True


class GridOptions(VariantOptions):
    """Grid search: as random search, for a space that has a grid."""

    needs_grid = True

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask: a simplex with a step is a grid of its points."""
        space = with_simplexes(setup.space, lambda each: Grid(values=tuple(map(each.at, range(each.size)))))
        return VariantSearcher(space, setup.num_samples, setup.seed, is_distinct=self.distinct)


class VariantSearcher(Searcher):
    """Random search over a grid.

    `ask(n)` depends on the seed and n. Each point of the grid gets `num_samples` samples, as in Ray Tune.

    With `is_distinct`, where all leaves but the grid's are discrete, no two trials of a grid point get the
    same values, and the search ends with the last of them (with a `note`). An ask then depends on earlier
    ones, too. Leaves of a grid alone repeat `num_samples` times even so: that is what was asked for.

    A point of the grid that has no config left which satisfies `where` is left out from then on. Which
    these are, a rebuilt one sees by the configs that it is given.

    Args:
        space: the parsed search space.
        num_samples: how many samples of each point of the grid; None: without an end.
        seed: the seed of the sweep.
        is_distinct: whether no config comes twice.
    """

    is_adaptive = False

    def __init__(
        self, space: Space, num_samples: int | None, seed: int, *, is_distinct: bool = False
    ) -> None:
        self._space = with_views(space)
        self._seed = seed
        self._grid = dict(_grid_leaves(self._space))
        self._random: list[Leaf] = [leaf for leaf in self._space.searched if not isinstance(leaf[1], Grid)]
        self._beliefs = Beliefs(self._random)
        names = {path: domain.values for path, domain in self._grid.items()}
        self._tree = Tree({path: len(values) for path, values in names.items()}, space.parents, names)
        # The points of the grid that satisfy `where`, as far as that does not look at what is drawn.
        self._kept = self._grid_points(self._tree.size or 1)
        self._num_samples = num_samples
        has_functions = any(isinstance(domain, SampleFrom) for _, domain in self._space.leaves)
        self._counts_cells = is_distinct and not has_functions
        self._cells_by_leaves: dict[tuple[LeafPath, ...], Cells | None] = {}
        sizes = self._sizes()
        limits = [total_of(num_samples, size) for size in sizes]
        self._rounds = Rounds(self._kept, limits if len(limits) == len(self._kept) else limits[:1])
        self._note = _note_of(sizes, num_samples)
        # Where there is no grid, as at each of its points.
        self._cells = None if self._grid else self._cells_at({})
        self._rng = Random(0)
        # Discrete spaces only: what each trial got, and per grid point what is used.
        self._cell_of: dict[int, Cell] = {}
        self._used: dict[int, set[Cell]] = {}
        # Whether `where` may leave a point without configs, and which have had some.
        self._is_bound = self._looks_at_drawn()
        self._found: set[int] = set()

    @property
    def total(self) -> int | None:  # type: ignore[override]
        """The number of configs that there will be, as far as that is known."""
        return self._rounds.total

    @property
    def note(self) -> str | None:  # type: ignore[override]
        """See `Searcher`."""
        left_out = self._rounds.left_out
        if not left_out:
            return self._note
        if not self._grid or self._num_samples is None:
            return left_over_note(sum(map(len, self._used.values())), self._num_samples)
        return fewer_note(left_out, len(self._kept), self._num_samples, self.total or 0)

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last sample."""
        if self.total is not None and number >= self.total:
            return None
        if self._cells is None and not self._grid:
            return self._space.build(self._space.draw(self._drawing(number, {})))
        passed = 0
        for passed, point in enumerate(self._rounds.turn(number)):
            values = self._values_at(number, point)
            if values is not None:
                config = self._space.build(values)
                self._keep(number, point, passed)
                return config
        if not self._found and not self._used:
            raise self._space.unsatisfied()
        self._rounds = self._rounds.without(number, passed + 1)
        return None

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of what a discrete trial used, and of points of the grid that had nothing left."""
        if self.total is not None and number >= self.total:
            return
        try:
            values = self._space.read(config)
        except (ValueError, TypeError, KeyError, IndexError):
            return  # outside the space: it cannot be drawn again
        passed, point = self._place_of(number, values)
        cells = self._cells_at(self._grid_values(point))
        if cells is not None:
            try:
                self._take(number, point, cells.cell(values))
            except (ValueError, TypeError):
                return
        self._keep(number, point, passed)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Do nothing: results do not change what is asked for."""

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Do nothing, as `tell`."""

    def _values_at(self, number: int, point: int) -> Mapping[LeafPath, Any] | None:
        """The values of a trial at a point of the grid; None where it has no more that satisfy `where`."""
        grid = self._grid_values(point) if self._grid else {}
        cells = self._cells_at(grid) if self._grid else self._cells
        if cells is not None:
            try:
                return grid | dict(self._unused_values(cells, number, point, grid))
            except NoneLeftError:
                return None
        values = self._space.find(self._drawing(number, grid))
        if values is None and point in self._found:
            raise self._space.unsatisfied()  # there are some, and another trial may draw them
        return values

    def _drawing(self, number: int, grid: Mapping[LeafPath, Any]) -> Callable[[int], dict[LeafPath, Any]]:
        """A function that draws the values of a trial at a point of the grid, anew at each call."""
        # The same as `derived_rng`, which seeds twice; it is not kept.
        rng = self._rng
        rng.seed(derived_seed(self._seed, number))

        def draw(attempt: int) -> dict[LeafPath, Any]:
            drawn = {path: domain.sample(rng) for path, domain in self._random}
            return {**grid, **drawn, **self._believed(rng, number, attempt)}

        return draw

    def _believed(self, rng: Random, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Values from the priors, where it is their turn."""
        sample = number // len(self._kept)
        if not self._beliefs or attempt >= ATTEMPTS or not is_turn(sample, KEPT):
            return {}
        return self._beliefs.values(rng, is_first=not sample and not attempt)

    def _place_of(self, number: int, values: Mapping[LeafPath, Any]) -> tuple[int, int]:
        """The number of grid points that a trial with these values passed over, and its own point."""
        if self._is_bound:
            for passed, point in enumerate(self._rounds.turn(number)):
                if self._is_at(number, point, values):
                    return passed, point
        return 0, self._rounds.point(number)

    def _is_at(self, number: int, point: int, values: Mapping[LeafPath, Any]) -> bool:
        grid = self._grid_values(point)
        if any(path in values and text(values[path]) != text(value) for path, value in grid.items()):
            return False
        cells = self._cells_at(grid)
        if cells is None or self._cell_of.get(number) is not None:
            return True
        try:
            # A grid may have a value twice: a config that the one has used is of the other.
            return cells.cell(values) not in self._used.get(point, ())
        except (ValueError, TypeError):
            return True

    def _keep(self, number: int, point: int, passed: int) -> None:
        """Take note of where a trial is, and that the points which it passed over are done."""
        if self._is_bound:
            self._found.add(point)
        if passed:
            self._rounds = self._rounds.without(number, passed)

    def _looks_at_drawn(self) -> bool:
        drawn = [path for path, _ in self._random]
        switches = self._space.switches
        return any(_touches(each, path, switches) for each in self._space.where for path in drawn)

    def _grid_values(self, point: int) -> dict[LeafPath, Any]:
        indices = self._tree.at(point)  # the first path varies fastest
        return {path: self._grid[path].values[index] for path, index in indices.items()}

    def _cells_at(self, grid: Mapping[LeafPath, Any]) -> Cells | None:
        """The cells of what is drawn at a point of the grid; None where they are not counted."""
        if not self._counts_cells:
            return None
        leaves = [leaf for leaf in self._random if self._space.is_reached(leaf[0], grid)]
        key = tuple(path for path, _ in leaves)
        if key not in self._cells_by_leaves:
            self._cells_by_leaves[key] = cells_of(leaves, self._space.parents)
        return self._cells_by_leaves[key]

    def _sizes(self) -> list[int | None]:
        """The number of cells of each point of the grid; one number where all have the same."""
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
            drawn = {path: widened(domain, attempt).sample(rng) for path, domain in self._random}
            return drawn | self._believed(rng, number, attempt)

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
    """The point of the grid of each trial: all in turn, those that have had their samples passed over.

    Args:
        points: the points of the grid.
        limits: how many samples each has (None: no end of them), or one number for all.
        first: the trial that these begin with.
        before: which points were in turn before, from which trials on.
        left_out: how many points have been left out.
    """

    def __init__(
        self,
        points: Sequence[int],
        limits: list[int | None],
        first: int = 0,
        before: Sequence[Stretch] = (),
        left_out: int = 0,
    ) -> None:
        self._points, self._limits, self._first = points, limits, first
        self.left_out = left_out
        # From which trial on which points are left, until the next ones of them are done.
        self._stretches: list[Stretch] = []
        done = 0
        for end in [*sorted({limit for limit in limits if limit is not None}), None]:
            left = points
            if len(limits) > 1:
                pairs = zip(points, limits, strict=True)
                left = [point for point, limit in pairs if limit is None or limit > done]
            elif limits and limits[0] is not None and limits[0] <= done:
                left = []
            self._stretches.append((first, left))
            first, done = (first, done) if end is None else (first + (end - done) * len(left), end)
        self.total: int | None = None if None in limits else first
        self._before = before

    def point(self, number: int) -> int:
        """Return the point of trial `number`, which is below `total`."""
        first, points = self._stretch(number)
        return points[(number - first) % len(points)]

    def turn(self, number: int) -> Iterator[int]:
        """The point of trial `number`, and those that it is at if those before are left out."""
        yield self.point(number)
        if len(self._points) > 1:
            yield from (point for point, _ in self._after(number))

    def without(self, number: int, count: int) -> Rounds:
        """The same, but from trial `number` on without the first points of its turn, so many of them."""
        left = self._after(number)[count - 1 :]
        before = [*self._before, *(each for each in self._stretches if each[0] < number)]
        points, limits = [point for point, _ in left], [limit for _, limit in left]
        return Rounds(points, limits, number, before, self.left_out + count)

    def _stretch(self, number: int) -> Stretch:
        for first, points in reversed([*self._before, *self._stretches]):
            if first <= number and points:
                return first, points
        raise ValueError(f"there is no trial {number}")

    def _after(self, number: int) -> list[tuple[int, int | None]]:
        """The points after that of a trial, in their turn, and how many samples each has left."""
        first, points = self._stretch(number)
        at = (number - first) % len(points)
        is_one = len(self._limits) != len(self._points)
        limits_of = self._limits * len(self._points) if is_one else self._limits
        limits = dict(zip(self._points, limits_of, strict=True))
        counts = self._counts(number)
        found = []
        for point in [*points[at + 1 :], *points[:at]]:
            limit = limits[point]
            if limit is None or limit > counts[point]:
                found.append((point, None if limit is None else limit - counts[point]))
        return found

    def _counts(self, number: int) -> Counter[int]:
        """The number of trials that each point has, from the first one of these to before this one."""
        counts: Counter[int] = Counter()
        ends = [*(first for first, _ in self._stretches[1:]), number]
        for (first, points), end in zip(self._stretches, ends, strict=True):
            whole, rest = divmod(max(min(end, number) - first, 0), len(points) or 1)
            counts.update({point: whole + (place < rest) for place, point in enumerate(points)})
        return counts


def _note_of(sizes: Sequence[int | None], num_samples: int | None) -> str | None:
    """A note for the user if the points of a grid, `where` apart, have fewer configs than samples."""
    known = [size for size in sizes if size is not None]
    note = exhausted_note(min(known), num_samples) if known else None
    if note is not None and len(set(sizes)) > 1:
        return "some points of the grid have fewer configs than samples: each is tried once"
    return note


def _touches(relation: Relation, path: LeafPath, switches: Collection[LeafPath]) -> bool:
    """True if a relation looks at a leaf, at a part of it, or at what holds it."""
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
