"""A Gaussian process, and others in its place for as long as it finds nothing better.

On a function with many minima, or with a bend that no smooth function has, a Gaussian process takes what it
cannot explain for noise and asks for the place of its mean's minimum again and again. So once it has found
nothing better for a while, three have their turns: itself, TPE, and steps from the best config, from far to
near and of some parameters only. What is better gives it the next turns alone again.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from random import Random
from statistics import NormalDist
from typing import Any, Final

from raysweep.search.base import Result, derived_rng, derived_seed
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.feasible import avoids, end_infeasible
from raysweep.search.machinery.model import Model
from raysweep.space.domains import Float, Integer
from raysweep.space.parsed import Space
from raysweep.space.units import from_unit, is_open, to_unit

STARTUP: Final = 10
"""The number of trials drawn at random first: random start-up trials do not count as a stall."""
PATIENCE: Final = 5
"""After so many results without a better one, and as many as run, others have their turns, too."""
TURNS: Final = ("other", "near", "first")
"""The model of each turn, by the trial's number."""
FAR: Final = 0.15
NEAR: Final = 0.005
"""The standard deviations of a step away from the best, of a parameter's range: the first and the last."""
ROUND: Final = 20
"""The number of steps from far to near; then it begins anew."""
SHARE: Final = 0.5
"""The probability that a parameter differs from the best config's."""
_EDGE: Final = 2.0**-53
Cost = tuple[float, float]
"""The distance from satisfying the constraints, and the value to minimise."""


class RelievedModel:
    """One model, relieved by another and by steps from the best config where it gets no further.

    Whose turn it is depends on results by their trials' numbers, in whatever order they were told.

    Args:
        space: the parsed search space, without branches.
        seed: the seed of the sweep.
        mode: "min" or "max".
        first: the model that has its turn by default.
        other: the one that relieves it.
    """

    substitution: str | None = None

    def __init__(self, space: Space, seed: int, mode: str, first: Model, other: Model) -> None:
        self._seed = seed
        self._sign = -1.0 if mode == "max" else 1.0
        self._first, self._other = first, other
        self.paths = first.paths
        self._leaves = [
            (path, domain)
            for path, domain in space.searched
            if path in first.paths and isinstance(domain, Float | Integer) and is_open(domain)
        ]
        self._running: set[int] = set()
        self._values: dict[int, dict[LeafPath, Any]] = {}
        self._ended: list[int] = []  # numbers, sorted
        self._costs: dict[int, Cost] = {}
        self._best: tuple[Cost, int] | None = None

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of the leaves, by whose turn it is."""
        no_better, running = self._results_without_better(), len(self._running)
        turn = self._turn(number)
        if turn != "near":
            return (self._first if turn == "first" else self._other).sample(number, attempt)
        rng = derived_rng(derived_seed(self._seed, number, attempt), number)
        return self._near_best(rng, no_better - PATIENCE + running)

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Let both know."""
        for model in (self._first, self._other):
            model.add(number, values)
        self._running.add(number)
        self._values[number] = {path: values[path] for path in self.paths}

    def end(self, number: int, result: Result | None) -> None:
        """Let both know."""
        for model in (self._first, self._other):
            model.end(number, result)
        self._note_end(number, result)

    def _note_end(self, number: int, result: Result | None) -> None:
        if number in self._running:
            self._running.remove(number)
            insort(self._ended, number)
        was_best = self._best is not None and self._best[1] == number
        self._costs.pop(number, None)
        if result is not None:
            self._costs[number] = cost = result.penalty, self._sign * result.value
            if self._best is None or (cost, number) < self._best:
                self._best, was_best = (cost, number), False
        if was_best:  # it continued, and came to less
            self._best = min(((cost, each) for each, cost in self._costs.items()), default=None)

    def end_infeasible(self, number: int, worst: Result) -> None:
        """Let both know."""
        for model in (self._first, self._other):
            end_infeasible(model, number, worst)
        self._note_end(number, None)

    def avoids(self, number: int) -> bool:
        """True if the model whose turn it is looks at failures itself."""
        return self._turn(number) == "first" and avoids(self._first, number)

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Let both know."""
        for model in (self._first, self._other):
            model.add_earlier(values, result)

    def _turn(self, number: int) -> str:
        # What runs was mostly asked for before the model knew of these results.
        is_stalled = self._results_without_better() >= PATIENCE + len(self._running) and self._leaves
        return TURNS[number % len(TURNS)] if is_stalled else "first"

    def _results_without_better(self) -> int:
        """The number of results after the best one, and after the random ones; 0 where there is none."""
        if self._best is None:
            return 0
        return len(self._ended) - max(bisect_right(self._ended, self._best[1]), STARTUP)

    def _near_best(self, rng: Random, step: int) -> dict[LeafPath, Any]:
        assert self._best is not None
        values = dict(self._values[self._best[1]])
        away = FAR * (NEAR / FAR) ** (step % ROUND / ROUND)
        changed = [leaf for leaf in self._leaves if rng.random() < SHARE]
        for path, domain in changed or [rng.choice(self._leaves)]:
            count = domain.cardinality
            around = NormalDist(to_unit(domain, values[path]), max(away, 1 / count if count else 0.0))
            part = rng.uniform(around.cdf(0.0), around.cdf(1.0))
            place = around.inv_cdf(min(max(part, _EDGE), 1.0 - _EDGE))
            values[path] = from_unit(domain, min(max(place, 0.0), 1.0))
        return values
