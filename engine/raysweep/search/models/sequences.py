"""Sobol and Halton sequences: configs that cover the space more evenly than random ones.

By `scipy.stats.qmc`. The config of trial n is the sequence's nth point, whatever was asked before; only in a
discrete space, where no config comes twice, also earlier asks count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from scipy.stats import qmc

from raysweep.search.base import Searcher, TrialEnd, derived_rng, derived_seed
from raysweep.search.machinery.cells import (
    Cell,
    LeafPath,
    NoneLeftError,
    cells_of,
    draw_unused,
    exhausted_note,
    left_over_note,
    total_of,
    widened,
)
from raysweep.search.machinery.config_view import with_views
from raysweep.space.domains import SampleFrom
from raysweep.space.parsed import MAX_DRAWS, Space
from raysweep.space.unfolding import Unfolding
from raysweep.space.units import from_unit

ATTEMPTS = 32
"""In a discrete space, how many draws look for an unused config where the point's own is used already."""
_ENGINES: Final[dict[str, Callable[..., Any]]] = {"sobol": qmc.Sobol, "halton": qmc.Halton}


class SequenceSearcher(Searcher):
    """The points of a sequence, as configs.

    Args:
        space: the parsed search space, without `grid_search`.
        num_samples: how many configs; None: without an end.
        seed: the seed of the sweep; it scrambles the sequence.
        kind: which sequence, `sobol` or `halton`.
        scramble: whether the seed scrambles it.
    """

    is_adaptive = False

    def __init__(
        self, space: Space, num_samples: int | None, seed: int, kind: str, *, scramble: bool
    ) -> None:
        self._space = with_views(space)
        self._seed, self._num_samples = seed, num_samples
        self._make = _ENGINES[kind]
        self._scrambles = scramble
        self._leaves = space.searched
        self._unfolding = Unfolding(space)
        self._coordinates = self._unfolding.space.searched
        self._engine: Any = None
        self._next = 0
        # The places in the sequence of the points that satisfy `where`, as far as they were looked for.
        self._allowed: list[int] = []
        has_functions = any(isinstance(domain, SampleFrom) for _, domain in space.leaves)
        self._cells = None if has_functions else cells_of(space.searched, space.parents)
        size = None if self._cells is None else self._cells.size
        self.total: int | None = total_of(num_samples, size)
        self.note: str | None = None if size is None else exhausted_note(size, num_samples)
        self._cell_of: dict[int, Cell] = {}
        self._used: set[Cell] = set()

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last sample."""
        if self.total is not None and number >= self.total:
            return None
        known = self._cell_of.get(number)
        if self._cells is None:
            return self._space.build(self._values(number))
        if known is not None:
            return self._space.build(self._cells.values(known))
        rng = derived_rng(self._seed, number)

        def draw(attempt: int) -> Mapping[LeafPath, Any]:
            if not attempt:
                return self._values_at(number)
            return {path: widened(domain, attempt).sample(rng) for path, domain in self._leaves}

        allows = self._space.allows if self._space.where else None
        try:
            cell, values = draw_unused(self._cells, self._used, draw, rng, ATTEMPTS, allows)
        except NoneLeftError:
            if not self._used:
                raise self._space.unsatisfied() from None
            self.note = left_over_note(len(self._used), self._num_samples)
            return None
        config = self._space.build(values)
        self._take(number, cell)
        return config

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of what a discrete trial used. Nothing is kept for continuous spaces."""
        if self._cells is None:
            return
        try:
            cell = self._cells.cell(self._space.read(config))
        except (ValueError, TypeError, KeyError, IndexError):
            return  # outside the space: it cannot be drawn again
        self._take(number, cell)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Do nothing: results do not change what is asked for."""

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Do nothing, as `tell`."""

    def _take(self, number: int, cell: Cell) -> None:
        self._cell_of[number] = cell
        self._used.add(cell)

    def _values(self, number: int) -> dict[LeafPath, Any]:
        if not self._leaves:
            return {}
        if not self._space.where:
            return self._values_at(number)
        while len(self._allowed) <= number:
            self._find_next()
        return self._values_at(self._allowed[number])

    def _find_next(self) -> None:
        """Find the next point of the sequence that satisfies `where`: those that do not are left out."""
        first = self._allowed[-1] + 1 if self._allowed else 0
        for index in range(first, first + MAX_DRAWS):
            if self._space.allows(self._values_at(index)):
                self._allowed.append(index)
                return
        raise self._space.unsatisfied()

    def _values_at(self, index: int) -> dict[LeafPath, Any]:
        """The values of the point at this place in the sequence."""
        values = {
            path: from_unit(domain, float(place))
            for (path, domain), place in zip(self._coordinates, self._point(index), strict=True)
        }
        return self._unfolding.to_values(values)

    def _point(self, number: int) -> Any:
        if self._engine is None or number < self._next:
            rng = np.random.default_rng(derived_seed(self._seed, 0))
            self._engine = self._make(len(self._coordinates), scramble=self._scrambles, rng=rng)
            self._next = 0
        if number > self._next:
            self._engine.fast_forward(number - self._next)
        self._next = number + 1
        return self._engine.random(1)[0]
