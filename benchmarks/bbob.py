"""BBOB's 24 functions (Hansen et al., 2009) in five dimensions: what searches find in 200 trials.

The functions are those of the package coco-experiment, instance 1. A seed is the search's alone. The regret
is normalised as on OptunaHub's page of `cma_es_refinement`: what is left to the minimum, over what a random
search leaves on average. There, over ten seeds, Optuna's TPE has 0.246 on average, CMA-ES 0.200, with
refinement 0.128.

    uv pip install --constraints constraints.txt coco-experiment
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.hunts import OPTUNA, Problem, beside, hunt
from benchmarks.measure import Json, significant, target

DIMENSIONS: Final = 5
TRIALS: Final = 200
SEEDS: Final = 3
FUNCTIONS: Final = range(1, 25)
CONTENDERS: Final = (OPTUNA, "random", "tpe", "cma_es", "auto")


def run(
    rounds: int, *, seeds: int = SEEDS, trials: int = TRIALS, functions: Sequence[int] = FUNCTIONS
) -> Json:
    """Normalised regrets by contender, and by function; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    found: dict[str, dict[int, list[float]]] = {kind: {} for kind in CONTENDERS}
    for number in functions:
        problem = _problem(number)
        regrets = {
            kind: [hunt(kind, problem, seed, trials).regret for seed in range(seeds)] for kind in CONTENDERS
        }
        left = fmean(regrets["random"])
        for kind in CONTENDERS:
            found[kind][number] = [regret / left for regret in regrets[kind]]
    shown = {kind: _shown(found[kind], found[OPTUNA]) for kind in CONTENDERS}
    return {
        "trials": trials,
        "seeds": seeds,
        "load": round(os.getloadavg()[0], 1),
        "contenders": shown,
        "targets": [
            target("auto: median normalised regret", shown["auto"]["median"], at_most=0.20),
            target("auto: mean normalised regret", shown["auto"]["mean"], at_most=0.20),
        ],
    }


def _shown(found: dict[int, list[float]], theirs: dict[int, list[float]]) -> Json:
    every = [regret for regrets in found.values() for regret in regrets]
    return {
        "mean": significant(fmean(every)),
        "median": significant(median(every)),
        **beside(every, [regret for regrets in theirs.values() for regret in regrets]),
        "functions": {number: significant(fmean(regrets)) for number, regrets in found.items()},
    }


def _problem(number: int) -> Problem:
    function = _suite(number).get_problem_by_function_dimension_instance(number, DIMENSIONS, 1)
    return Problem(
        space={f"x{index}": {"uniform": [-5, 5]} for index in range(DIMENSIONS)},
        value=lambda config: float(function([config[f"x{index}"] for index in range(DIMENSIONS)])),
        minimum=_minimum(function),
    )


def _suite(number: int) -> Any:
    import cocoex

    return cocoex.Suite("bbob", "instances:1", f"dimensions:{DIMENSIONS} function_indices:{number}")


def _minimum(function: Any) -> float:
    """The function's least value: COCO tells where it is in a file of the working directory only."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        function._best_parameter("print")
        (file,) = Path(folder).iterdir()
        return float(function([float(each) for each in re.split(r"\s+", file.read_text().strip())]))
