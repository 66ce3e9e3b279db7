"""How good the searches are: regret on closed-form functions, beside Optuna's own defaults in the same run.

One trial at a time on a virtual clock, see `benchmarks.hunts`. Seeds are paired: both get the same one, and
with it the same turn of the function.

`regret` is the best value found minus the function's minimum, the median over the seeds. `ratio` is Optuna's
over the contender's (above 1: the contender is better), `wins` at how many seeds it found the better value,
`sign_test` the probability of so uneven a share by chance.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from statistics import median
from typing import Final

from benchmarks.hunts import OPTUNA, Hunt, Problem, beside, hunt
from benchmarks.measure import Json, significant, target

TRIALS: Final = 60
SEEDS: Final = 20
CONTENDERS: Final = ("random", "tpe", "cma_es", "auto")
Values = Sequence[float]
Function = Callable[[Values], float]


def branin(x: Values) -> float:
    """Branin and Hoo, 1972: three minima of 0.397887."""
    a = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10


_ALPHA: Final = (1.0, 1.2, 3.0, 3.2)
_A: Final = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_P: Final = (
    (1312, 1696, 5569, 124, 8283, 5886),
    (2329, 4135, 8307, 3736, 1004, 9991),
    (2348, 1451, 3522, 2883, 3047, 6650),
    (4047, 8828, 8732, 5743, 1091, 381),
)


def hartmann6(x: Values) -> float:
    """Hartmann, 1973: six minima, the least of them -3.32237."""
    return hartmann6_of(x, _ALPHA)


def hartmann6_of(x: Values, heights: Values) -> float:
    """The same of four hills of these heights."""
    return -sum(
        height * math.exp(-sum(a * (v - p * 1e-4) ** 2 for a, v, p in zip(row, x, places, strict=True)))
        for height, row, places in zip(heights, _A, _P, strict=True)
    )


def rosenbrock(x: Values) -> float:
    """Rosenbrock, 1960: a bent valley with its minimum of 0 where all are 1."""
    return sum(100 * (b - a**2) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))


def sphere(z: Values) -> float:
    """A bowl."""
    return sum(v**2 for v in z)


def rastrigin(z: Values) -> float:
    """Rastrigin, 1974: a bowl with a minimum in every cell of a grid."""
    return sum(v**2 + 10 * (1 - math.cos(2 * math.pi * v)) for v in z)


def ellipsoid(z: Values) -> float:
    """A bowl that is a thousand times as long as it is wide."""
    return sum(1e6 ** (index / (len(z) - 1)) * v**2 for index, v in enumerate(z))


def turned(function: Function, instance: int, dimensions: int = 5) -> Function:
    """As the functions of BBOB are (Hansen et al., 2009): turned about, with the minimum somewhere else."""
    random = Random(instance)
    rotation: list[list[float]] = []
    while len(rotation) < dimensions:  # Gram and Schmidt
        row = [random.gauss(0, 1) for _ in range(dimensions)]
        for other in rotation:
            along = sum(a * b for a, b in zip(row, other, strict=True))
            row = [a - along * b for a, b in zip(row, other, strict=True)]
        length = math.sqrt(sum(a * a for a in row))
        rotation.append([a / length for a in row])
    middle = [random.uniform(-4, 4) for _ in range(dimensions)]

    def value(x: Values) -> float:
        moved = [a - b for a, b in zip(x, middle, strict=True)]
        return function([sum(a * b for a, b in zip(row, moved, strict=True)) for row in rotation])

    return value


PROBLEMS: Final[dict[str, tuple[Callable[[int], Function], float, tuple[tuple[float, float], ...]]]] = {
    "branin": (lambda _: branin, 0.39788735772973816, ((-5, 10), (0, 15))),
    "hartmann6": (lambda _: hartmann6, -3.322368011415515, ((0, 1),) * 6),
    "rosenbrock5": (lambda _: rosenbrock, 0.0, ((-5, 10),) * 5),
    "sphere5": (lambda seed: turned(sphere, seed), 0.0, ((-5, 5),) * 5),
    "rastrigin5": (lambda seed: turned(rastrigin, seed), 0.0, ((-5, 5),) * 5),
    "ellipsoid5": (lambda seed: turned(ellipsoid, seed), 0.0, ((-5, 5),) * 5),
}


def run(rounds: int, seeds: int = SEEDS, trials: int = TRIALS) -> Json:
    """Regrets by function and contender; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    problems = {name: compare(name, seeds, trials) for name in PROBLEMS}
    targets = [
        target(f"{name}: auto, times as good as Optuna's default", found["auto"]["ratio"], at_least=1.0)
        for name, found in problems.items()
    ]
    load = round(os.getloadavg()[0], 1)
    return {"trials": trials, "seeds": seeds, "load": load, "problems": problems, "targets": targets}


def compare(problem: str, seeds: int, trials: int, kinds: Sequence[str] = CONTENDERS) -> Json:
    """One function: what each contender found, beside Optuna's default."""
    theirs = [hunt(OPTUNA, _problem(problem, seed), seed, trials) for seed in range(seeds)]
    shown = {OPTUNA: _shown(theirs, theirs, trials)}
    for kind in kinds:
        hunts = [hunt(kind, _problem(problem, seed), seed, trials) for seed in range(seeds)]
        shown[kind] = _shown(hunts, theirs, trials)
    return shown


def _problem(name: str, seed: int) -> Problem:
    make, minimum, bounds = PROBLEMS[name]
    function = make(seed)
    return Problem(
        space={f"x{index}": {"uniform": list(each)} for index, each in enumerate(bounds)},
        value=lambda config: function([config[f"x{index}"] for index in range(len(bounds))]),
        minimum=minimum,
    )


def _shown(hunts: Sequence[Hunt], theirs: Sequence[Hunt], trials: int) -> Json:
    regrets = [each.regret for each in hunts]
    shown: Json = {
        "regret": significant(median(regrets)),
        "ms_per_ask": round(1e3 * median(each.took_s for each in hunts) / trials, 1),
    }
    return shown if hunts is theirs else shown | beside(regrets, [each.regret for each in theirs])
