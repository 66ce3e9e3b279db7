"""A simplex of eight parts, beside the usual way: eight numbers that the trainable divides by their sum.

The value is how far the shares are from a mixture that the seed draws, in squares that are weighted by the
seed, too. `regret` is the median over the seeds; `ratio` is that of the numbers over that of the simplex
(above 1: the simplex is better), `wins` at how many seeds it found the better value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from random import Random
from statistics import median
from typing import Any, Final

from benchmarks.hunts import Problem, beside, hunt
from benchmarks.measure import Json, significant, target

PARTS: Final = tuple("abcdefgh")
SEEDS: Final = 20
TRIALS: Final = 60
SEARCHES: Final = ("random", "tpe", "cma_es", "nsga2", "auto")
LEARNING: Final = ("tpe", "cma_es", "auto")


def run(rounds: int, seeds: int = SEEDS, trials: int = TRIALS, searches: Sequence[str] = SEARCHES) -> Json:
    """Regrets by search; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    found = {kind: _compare(kind, seeds, trials) for kind in searches}
    targets = [
        target(f"{kind}: a simplex, times as good as numbers", found[kind]["ratio"], at_least=1.0)
        for kind in searches
        if kind in LEARNING
    ]
    load = round(os.getloadavg()[0], 1)
    return {"trials": trials, "seeds": seeds, "load": load, "searches": found, "targets": targets}


def _compare(kind: str, seeds: int, trials: int) -> Json:
    simplexes = [hunt(kind, _problem(seed, is_simplex=True), seed, trials).regret for seed in range(seeds)]
    numbers = [hunt(kind, _problem(seed, is_simplex=False), seed, trials).regret for seed in range(seeds)]
    return {
        "simplex": significant(median(simplexes)),
        "numbers": significant(median(numbers)),
        **beside(simplexes, numbers),
    }


def _problem(seed: int, *, is_simplex: bool) -> Problem:
    rng = Random(seed)
    aim = [rng.expovariate(1) for _ in PARTS]
    aim = [each / sum(aim) for each in aim]
    weights = [rng.uniform(0.5, 2) for _ in PARTS]

    def value(config: Mapping[str, Any]) -> float:
        given = [config["mix"][part] for part in PARTS]
        whole = sum(given) or 1.0
        pairs = zip(weights, given, aim, strict=True)
        return sum(weight * (share / whole - best) ** 2 for weight, share, best in pairs)

    numbers = {part: {"uniform": [0, 1]} for part in PARTS}
    return Problem(space={"mix": {"simplex": list(PARTS)} if is_simplex else numbers}, value=value)
