"""DEHB: differential evolution in the brackets of HyperBand.

Algorithm: Awad, Mallik and Hutter, "DEHB: Evolutionary Hyperband for Scalable, Robust and Efficient
Hyperparameter Optimization", IJCAI 2021, arXiv:2105.09821, with the rules of the authors' package. Each rung
has a population of its own. A trial competes for one place in its rung's: the better one has it. In the
first band, the rungs above a bracket's first one get the best configs of the rung below; everywhere else a
config is a parent's, with about half of its parameters replaced (binomial crossover) by those of a mutant
a + F (b - c) of three configs of the pool: the best of the rung below, and in a bracket's first rung, of the
rung itself. What leaves the range is drawn anew.

Other than the authors': where trials run at once, a rung begins with those results of the rung below that
there are, and no bracket begins before its time; what a rung has had is not promoted to it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any, Final, NamedTuple

from pydantic import Field

from raysweep.errors import SpecError
from raysweep.schedulers.dehb import DehbOptions as DehbTimes
from raysweep.schedulers.machinery.brackets import Brackets
from raysweep.schedulers.machinery.brackets import Place as BracketPlace
from raysweep.search.base import Result, Searcher, SearchSetup, derived_rng, derived_seed
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.model import (
    around,
    refuse_grid,
    unconditional,
    without_model,
)
from raysweep.search.options import SearchOptions
from raysweep.space.domains import Choice, Domain, Float, Integer
from raysweep.space.parsed import Space
from raysweep.space.units import from_unit, to_unit

_PARENTS: Final = 3
Vector = tuple[float, ...]
"""A config in the model: the place of each parameter in its range, from 0 to 1."""
Values = dict[LeafPath, Any]


class Holder(NamedTuple):
    """The holder of a place in a population: the less the better, and first of all within the constraints."""

    penalty: float
    score: float
    trial: int


_NOBODY: Final = Holder(math.inf, math.inf, 0)


class DehbOptions(SearchOptions):
    """DEHB (Awad et al., 2021): differential evolution in the brackets of `scheduler: dehb`."""

    is_adaptive = True
    is_bounded = True
    is_counted = True
    needs_scheduler = "dehb"
    takes_given = False

    mutation_factor: float = Field(default=0.5, gt=0, le=1)
    """The part of the difference of two configs by which a mutant moves."""
    crossover_prob: float = Field(default=0.5, ge=0, le=1)
    """The probability that a parameter is the mutant's; one is in any case."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "dehb")
        times = setup.scheduler.options
        if not isinstance(times, DehbTimes):  # the spec has seen to it
            raise SpecError(
                "search",
                f"dehb runs in the brackets of its scheduler, and that is {setup.scheduler.kind}",
                "set scheduler: dehb",
            )
        brackets = Brackets(times.max_t, times.reduction_factor)
        model = DehbModel(setup.model_space, setup.seed, setup.mode, self, brackets)
        return around(model, setup, repeats=True)


class DehbModel:
    """A population for each rung, over the leaves that every config has.

    The best of the trials that were told has the place, in whatever order they were told.

    Args:
        space: the parsed search space, without `grid_search`; normal distributions and what is in branches
            do not evolve.
        seed: the seed of the sweep.
        mode: "min" or "max".
        options: see `DehbOptions`.
        brackets: at which rung each trial stands.
    """

    substitution: str | None = None

    def __init__(self, space: Space, seed: int, mode: str, options: DehbOptions, brackets: Brackets) -> None:
        self._seed, self._options, self._brackets = seed, options, brackets
        self._sign = -1.0 if mode == "max" else 1.0
        self._leaves = [
            (path, domain)
            for path, domain in unconditional(space, "dehb")
            if isinstance(domain, Float | Integer | Choice)
        ]
        if space.parents and not self._leaves:
            raise without_model("dehb")
        self.paths = frozenset(path for path, _ in self._leaves)
        self._values: dict[int, Values] = {}
        self._vectors: dict[int, Vector] = {}
        # By rung: who has each place; which configs were asked for.
        self._holders: list[dict[int, Holder]] = [{} for _ in brackets.times]
        self._asked: list[set[Vector]] = [set() for _ in brackets.times]

    def sample(self, number: int, attempt: int) -> Values:
        """Return values of the leaves that it models."""
        place = self._brackets.place(number)
        if not attempt and place.band == 0 and not place.is_first:
            promoted = self._promoted(place.rung)
            if promoted is not None:
                return dict(self._values[promoted])
        rng = derived_rng(self._seed, derived_seed(self._seed, number, attempt))
        return self._decoded(self._child(place, rng))

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Take note of where a trial is."""
        self._values[number] = dict(values)
        vector = tuple(_place(domain, values[path]) for path, domain in self._leaves)
        self._vectors[number] = vector
        self._asked[self._brackets.place(number).rung].add(vector)

    def end(self, number: int, result: Result | None) -> None:
        """Give a trial its place, if it is better than who has it."""
        if result is None:
            return
        place = self._brackets.place(number)
        held = self._holders[place.rung].get(place.slot)
        holder = Holder(result.penalty, self._sign * result.value, number)
        # Of equal ones the later, as in the authors' code: where all is flat a population moves on.
        if held is None or (holder[:2], held.trial) <= (held[:2], number):
            self._holders[place.rung][place.slot] = holder

    def end_infeasible(self, number: int, worst: Result) -> None:
        """Nothing: who fails gets no place, and so is no parent."""

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Nothing: a result of an earlier sweep is not of one of the rungs."""

    def _promoted(self, rung: int) -> int | None:
        """The best trial of the rung below whose config this rung has not had; None: no trial is left."""
        ranked = sorted(self._holders[rung - 1].values())
        fresh = (each.trial for each in ranked if self._vectors[each.trial] not in self._asked[rung])
        return next(fresh, None)

    def _child(self, place: BracketPlace, rng: Random) -> Vector:
        target = self._member(place.rung, place.slot)
        mutant = self._mutant(self._pool(place, rng), rng)
        chance = self._options.crossover_prob
        takes = [rng.random() < chance for _ in target]
        if takes and not any(takes):
            takes[rng.randrange(len(takes))] = True
        return tuple(
            (new if 0.0 <= new <= 1.0 else rng.random()) if taken else old
            for taken, new, old in zip(takes, mutant, target, strict=True)
        )

    def _pool(self, place: BracketPlace, rng: Random) -> list[Vector]:
        """The parents of a mutant: the best of a rung, filled up with mutants of all where they are few."""
        rung = place.rung if place.is_first else place.rung - 1
        places = range(self._brackets.populations[rung])
        ranked = sorted(places, key=lambda slot: (self._holders[rung].get(slot, _NOBODY), slot))
        pool = [self._member(rung, slot) for slot in ranked[: place.pool]]
        if len(pool) < _PARENTS:
            everybody = [
                self._member(each, slot)
                for each, size in enumerate(self._brackets.populations)
                for slot in range(size)
            ]
            pool += [self._mutant(everybody, rng) for _ in range(_PARENTS - len(pool) + 1)]
        return pool

    def _mutant(self, pool: list[Vector], rng: Random) -> Vector:
        if len(pool) < _PARENTS:  # a single rung, of a small population
            pool = [*pool, *(self._random(rng) for _ in range(_PARENTS - len(pool)))]
        factor = self._options.mutation_factor
        return tuple(a + factor * (b - c) for a, b, c in zip(*rng.sample(pool, _PARENTS), strict=True))

    def _member(self, rung: int, slot: int) -> Vector:
        """The member at a place; before there is one, a random config."""
        held = self._holders[rung].get(slot)
        if held is not None:
            return self._vectors[held.trial]
        return self._random(derived_rng(self._seed, derived_seed(self._seed, -1 - rung, slot)))

    def _random(self, rng: Random) -> Vector:
        return tuple(rng.random() for _ in self._leaves)

    def _decoded(self, vector: Vector) -> Values:
        return {path: from_unit(domain, at) for (path, domain), at in zip(self._leaves, vector, strict=True)}


def _place(domain: Domain, value: Any) -> float:
    if isinstance(domain, Choice):
        return (domain.values.index(value) + 0.5) / len(domain.values)
    if not isinstance(domain, Float | Integer):
        raise TypeError(f"{domain!r} has no places")
    return to_unit(domain, value)
