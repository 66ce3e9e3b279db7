"""Every config of a discrete space."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from raysweep.errors import SpecError
from raysweep.search.base import Searcher, SearchSetup, TrialEnd
from raysweep.search.machinery.cells import Cells, cells_of, codec
from raysweep.search.machinery.config_view import with_views
from raysweep.search.options import SearchOptions
from raysweep.space.parsed import Space

_ROUNDS = 4
MOST_CELLS = 1_000_000
"""The most configs that are looked at for those that satisfy `where`, before the first ask."""


class BruteForceOptions(SearchOptions):
    """Every config of a discrete space, `num_samples` times each, in random order: no options."""

    metrics = "none"
    is_exhaustive = True
    is_counted = False

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        return BruteForceSearcher(setup.space, setup.num_samples, setup.seed)


class BruteForceSearcher(Searcher):
    """All configs once, then all again, `num_samples` times, each time in another order.

    The config of trial n is a function of the seed and n: of a sweep that is ended early, the configs that
    ran are spread over the space.

    Args:
        space: the parsed search space.
        num_samples: how often each config runs; None: without an end.
        seed: the seed of the sweep.

    Raises:
        SpecError: the values of a leaf cannot be counted.
    """

    is_adaptive = False
    note: str | None = None

    def __init__(self, space: Space, num_samples: int | None, seed: int) -> None:
        self._space = with_views(space)
        self._seed = seed
        self._cells = _cells(space)
        self._size = 1 if self._cells is None else self._cells.size or 1
        self._allowed = self._find_allowed()
        self._size = self._size if self._allowed is None else len(self._allowed)
        self.total: int | None = None if num_samples is None else self._size * num_samples

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last."""
        if self.total is not None and number >= self.total:
            return None
        if self._cells is None:
            return self._space.build({})
        repeat, place = divmod(number, self._size)
        rank = _shuffled(place, self._size, f"{self._seed}:{repeat}")
        return self._space.build(self._cells.at(rank if self._allowed is None else self._allowed[rank]))

    def _find_allowed(self) -> list[int] | None:
        """The cells that satisfy `where`; None: all do."""
        cells = self._cells
        if not self._space.where or cells is None:
            return None
        if self._size > MOST_CELLS:
            problem = f"brute_force looks at each of {self._size} configs, at most {MOST_CELLS}"
            raise SpecError("where", problem, "narrow the space, or leave where out")
        allowed = [rank for rank in range(self._size) if self._space.allows(cells.at(rank))]
        if not allowed:
            relations = ", ".join(repr(relation.text) for relation in self._space.where)
            problem = f"none of the {self._size} configs satisfies {relations}"
            raise SpecError("where", problem, "relax where, or widen the space")
        return allowed

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Do nothing: a number says which config it is."""

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Do nothing, as above."""

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Do nothing, as above."""


def _cells(space: Space) -> Cells | None:
    for path, domain in space.searched:
        numbering = codec(domain)
        if numbering is None or numbering.size is None:
            raise SpecError(
                f"param_space.{'.'.join(path)}",
                "brute_force tries every value, and this has no end of them",
                'write {"choice": [...]}, randint, or quniform with a step; or search: "random"',
            )
    return cells_of(space.searched, space.parents)


def _shuffled(place: int, size: int, key: str) -> int:
    """The place of element `place` after shuffling `size` of them: a Feistel net, walking its cycle."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for turn in range(_ROUNDS):
            digest = blake2b(f"{key}:{turn}:{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        place = left << half | right
        if place < size:
            return place
