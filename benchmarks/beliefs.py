"""Priors, right and wrong, beside the same search without: regret on closed-form functions.

A right prior's middle is half a sigma from the minimum in each parameter, in a direction that the seed draws;
a wrong one's is as far from it as the range allows. Sigma is a tenth of the range for both.

`cost` is which share of its trials a search lost by the wrong prior: without priors it needs the other ones
to be as good in the mean of the regret's logarithm over the seeds. 0: the wrong prior did no harm.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from random import Random
from statistics import fmean, median
from typing import Any, Final, Literal

from benchmarks.hunts import Problem, beside, values
from benchmarks.measure import Json, significant, target
from benchmarks.search import hartmann6, rosenbrock, sphere

SEEDS: Final = 20
TRIALS: Final = 50
SEARCHES: Final = ("random", "tpe", "cma_es", "auto")
SIGMA: Final = 0.1
MOST: Final = 0.2
"""Which share of the trials a wrong prior may cost."""
Belief = Literal["none", "right", "wrong"]
_BOWL: Final = (0.3, -1.2, 2.1, -0.4, 3.3)
FUNCTIONS: Final[dict[str, tuple[Callable[[Sequence[float]], float], float, Any, tuple[float, ...]]]] = {
    "rosenbrock5": (rosenbrock, 0.0, ((-5, 10),) * 5, (1.0,) * 5),
    "hartmann6": (
        hartmann6,
        -3.322368011415515,
        ((0, 1),) * 6,
        (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),
    ),
    "bowl5": (
        lambda x: sphere([a - b for a, b in zip(x, _BOWL, strict=True)]),
        0.0,
        ((-5, 5),) * 5,
        _BOWL,
    ),
}


def run(
    rounds: int,
    seeds: int = SEEDS,
    trials: int = TRIALS,
    searches: Sequence[str] = SEARCHES,
    functions: Sequence[str] = tuple(FUNCTIONS),
) -> Json:
    """Regrets by function and search; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    found = {name: {kind: _compare(name, kind, seeds, trials) for kind in searches} for name in functions}
    targets = [
        target(f"{name}: {kind}, share of trials that a wrong prior costs", each["cost"], at_most=MOST)
        for name, kinds in found.items()
        for kind, each in kinds.items()
    ]
    load = round(os.getloadavg()[0], 1)
    return {"trials": trials, "seeds": seeds, "load": load, "functions": found, "targets": targets}


def _compare(name: str, kind: str, seeds: int, trials: int) -> Json:
    beliefs: tuple[Belief, ...] = ("none", "right", "wrong")
    traces = {each: [_trace(name, kind, each, seed, trials) for seed in range(seeds)] for each in beliefs}
    ends = {belief: [trace[-1] for trace in found] for belief, found in traces.items()}
    plain = [_mean_log(trace[at] for trace in traces["none"]) for at in range(trials)]
    as_good = next((at for at, found in enumerate(plain, 1) if found <= _mean_log(ends["wrong"])), trials)
    return {
        "none": significant(median(ends["none"])),
        "right": {"regret": significant(median(ends["right"])), **beside(ends["right"], ends["none"])},
        "wrong": {"regret": significant(median(ends["wrong"])), **beside(ends["wrong"], ends["none"])},
        "cost": round(1 - as_good / trials, 3),
    }


def _trace(name: str, kind: str, belief: Belief, seed: int, trials: int) -> list[float]:
    """The regret after each trial."""
    problem = _problem(name, belief, seed)
    return [best - problem.minimum for best in accumulate(values(kind, problem, seed, trials), min)]


def _mean_log(regrets: Iterable[float]) -> float:
    return fmean(math.log(max(regret, 1e-12)) for regret in regrets)


def _problem(name: str, belief: Belief, seed: int) -> Problem:
    function, minimum, bounds, best = FUNCTIONS[name]
    rng, space = Random(seed), {}
    for index, ((low, high), at) in enumerate(zip(bounds, best, strict=True)):
        width = high - low
        away = rng.choice((-1, 1)) * SIGMA / 2 * width
        right = at + away if low <= at + away <= high else at - away
        wrong = low if at - low > high - at else high
        domain: dict[str, Any] = {"uniform": [low, high]}
        if belief != "none":
            domain["prior"] = {"normal": right if belief == "right" else wrong, "sigma": SIGMA * width}
        space[f"x{index}"] = domain
    count = len(bounds)
    return Problem(
        space=space, value=lambda config: function([config[f"x{at}"] for at in range(count)]), minimum=minimum
    )
