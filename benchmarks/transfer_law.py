"""Laws over scales on real trainings: what carried configs lose at a larger scale, beside copied ones.

The table (`data/README.md`) has a grid of learning rates and batches for each *cell*, a pair of size and
tokens. Trials are runs of six small cells; the target is another cell. The run of the grid that is nearest to
a config, in the logarithms of both, stands for it; its regret is its loss minus the best of the cell. Copying
takes the best trial of the largest small cell.

Trials: `random` draws runs of each cell; `tpe` and `auto` are asked for configs in each cell, and the nearest
run answers. `asha`: the table has no curves, so tokens are the rungs: of each size, twice as many random
configs run in the smallest cell, the best third of them in the next one, the best third of these in the
largest; as many trainings as otherwise.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, median, quantiles
from time import process_time
from typing import Any, Final

from benchmarks.measure import Json, target
from raysweep.search import make_searcher
from raysweep.specs import SweepSpec
from raysweep.transfer import fit

Cell = tuple[int, float]
Run = tuple[float, int, float]
"""Learning rate, batch, loss."""
TABLE: Final = Path(__file__).with_name("data") / "step_law.csv"
DRAWS: Final = 60
COUNTS: Final = (8, 12, 24)
TARGETS: Final = ("537M/50B", "1074M/20B", "1074M/57B")
TRIALS: Final = ("random", "tpe", "asha")
MEDIAN, MOST = 0.005, 0.02
"""Of the regret at 12 trials a cell: the median and 90 % of the draws."""
SMALL: Final = (3e8, 6e10)
"""Small cells have fewer parameters and tokens."""
CHECKS: Final[Mapping[str, tuple[Callable[[float, float], bool], Callable[[float, float], bool]]]] = {
    "other targets": (lambda size, tokens: size < 3e8 and tokens < 6e10, lambda size, tokens: size > 3e8),
    "up to 429M, 30B": (
        lambda size, tokens: size < 4.5e8 and tokens < 3e10,
        lambda size, tokens: size > 4.5e8 or tokens > 7e10,
    ),
    "tokens at 215M": (
        lambda size, tokens: size < 2.2e8 and tokens < 3e10,
        lambda size, tokens: size < 2.2e8,
    ),
    "tokens at 429M": (
        lambda size, tokens: 4.2e8 < size < 4.5e8 and tokens < 3e10,
        lambda size, tokens: 4.2e8 < size < 4.5e8,
    ),
    "size, about 20B": (
        lambda size, tokens: size < 4.5e8 and 2e10 <= tokens <= 2.5e10,
        lambda size, tokens: size > 4.5e8 and 2e10 <= tokens < 3e10,
    ),
}
"""Other small cells and other targets (those of them that are not small)."""


def run(
    rounds: int,
    draws: int = DRAWS,
    counts: Sequence[int] = COUNTS,
    kinds: Sequence[str] = TRIALS,
    auto_draws: int = 0,
) -> Json:
    """Regrets by kind of trials and their number; more than three rounds are more draws."""
    cells, draws = read_table(), max(draws, draws * rounds // 3)
    small = [cell for cell in cells if cell[0] < SMALL[0] and cell[1] < SMALL[1]]
    goals = [cell for cell in cells if name_of(cell) in TARGETS]
    found: Json = {
        f"{kind}, {count}": _measure(cells, small, goals, kind, count, draws)
        for kind in kinds
        for count in (counts if kind == "random" else counts[len(counts) // 2 :][:1])
    }
    middle = counts[len(counts) // 2]
    if auto_draws:
        found[f"auto, {middle}"] = _measure(cells, small, goals, "auto", middle, auto_draws)
    checks = {
        name: _measure(cells, *_split(cells, *parts), "random", middle, max(draws // 3, 1))
        for name, parts in CHECKS.items()
    }
    return {
        "draws": draws,
        "load": round(os.getloadavg()[0], 1),
        "trials": found,
        "checks": checks,
        "shuffled_carry": _shuffled(cells, small, goals[:1], middle, draws),
        "edge": edges(cells, small, goals[:2], middle, max(draws // 3, 1)),
        "targets": _targets(found, middle),
    }


def _targets(found: Json, count: int) -> list[Json]:
    goals = []
    for kind, each in found.items():
        if f", {count}" not in kind:
            continue
        for name in TARGETS:
            goals.append(target(f"{kind}: {name}, median regret", each[name]["median"], at_most=MEDIAN))
            goals.append(target(f"{kind}: {name}, 90 % of regrets", each[name]["most"], at_most=MOST))
        goals.append(target(f"{kind}: intervals of the score that hold", each["hold"], at_least=0.7))
        goals.append(target(f"{kind}: intervals of the score that hold", each["hold"], at_most=0.9))
    return goals


def read_table() -> dict[Cell, list[Run]]:
    """The runs of each cell."""
    found: dict[Cell, list[Run]] = {}
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cell = int(row["params"]), float(row["tokens"])
            found.setdefault(cell, []).append((float(row["lr"]), int(row["batch"]), float(row["loss"])))
    return dict(sorted(found.items()))


def name_of(cell: Cell) -> str:
    """As in tables: `537M/50B`."""
    return f"{cell[0] / 1e6:.0f}M/{cell[1] / 1e9:.0f}B"


def nearest(runs: Sequence[Run], lr: float, batch: float) -> Run:
    """The run that stands for a config."""
    return min(runs, key=lambda run: math.log(run[0] / lr) ** 2 + math.log(run[1] / batch) ** 2)


def space_of(cells: Mapping[Cell, Sequence[Run]]) -> dict[str, Any]:
    """The space of all cells."""
    rates = [run[0] for runs in cells.values() for run in runs]
    batches = sorted({run[1] for runs in cells.values() for run in runs})
    return {"lr": {"loguniform": [min(rates), max(rates)]}, "batch": {"choice": batches}}


def _split(
    cells: Mapping[Cell, Sequence[Run]],
    is_small: Callable[[float, float], bool],
    is_target: Callable[[float, float], bool],
) -> tuple[list[Cell], list[Cell]]:
    small = [cell for cell in cells if is_small(*cell)]
    return small, [cell for cell in cells if is_target(*cell) and cell not in small]


def _measure(
    cells: Mapping[Cell, Sequence[Run]],
    small: Sequence[Cell],
    goals: Sequence[Cell],
    kind: str,
    count: int,
    draws: int,
) -> Json:
    """Regrets at each target, of the law and of copying; the intervals that hold; the processor's time."""
    space, took_s = space_of(cells), 0.0
    regrets: dict[Cell, list[tuple[float, float, bool, bool]]] = {goal: [] for goal in goals}
    for seed in range(draws):
        trials = _trials(cells, small, kind, count, seed)
        began = process_time()
        law = fit(trials, space=space, mode="min")
        for goal in goals:
            carried = law.at({"params": goal[0], "tokens": goal[1]})
            loss = nearest(cells[goal], carried.config["lr"], carried.config["batch"])[2]
            copied = _copied(trials)
            least = min(run[2] for run in cells[goal])
            regrets[goal].append(
                (
                    loss - least,
                    nearest(cells[goal], copied["lr"], copied["batch"])[2] - least,
                    carried.score_low <= loss <= carried.score_high,
                    carried.verdict == "carries",
                )
            )
        took_s += process_time() - began
    every = [each for found in regrets.values() for each in found]
    return {
        **{name_of(goal): _spread(found) for goal, found in regrets.items()},
        "all": _spread(every),
        "hold": round(fmean(each[2] for each in every), 2),
        "carries": round(fmean(each[3] for each in every), 2),
        "fit_s": round(took_s / draws, 3),
    }


def _spread(found: Sequence[tuple[float, float, bool, bool]]) -> Json:
    law, copied = [each[0] for each in found], [each[1] for each in found]
    return {
        "median": round(median(law), 4),
        "most": _most(law),
        "copy_median": round(median(copied), 4),
        "copy_most": _most(copied),
        "hold": round(fmean(each[2] for each in found), 2),
    }


def _most(values: Sequence[float]) -> float:
    """Below which 90 % of the values lie."""
    return round(quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0], 4)


def _copied(trials: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The config of the best trial of the largest cell."""

    def key(trial: Mapping[str, Any]) -> tuple[float, float]:
        return -math.prod(trial["scale"].values()), trial["score"]

    found: Mapping[str, Any] = min(trials, key=key)["config"]
    return found


def _trial(cell: Cell, run: Run) -> dict[str, Any]:
    scale = {"params": cell[0], "tokens": cell[1]}
    return {"scale": scale, "config": {"lr": run[0], "batch": run[1]}, "score": run[2]}


def _trials(
    cells: Mapping[Cell, Sequence[Run]], small: Sequence[Cell], kind: str, count: int, seed: int
) -> list[dict[str, Any]]:
    rng = Random(seed)
    if kind == "asha":
        return _halved(cells, small, count, rng)
    if kind == "random":
        return [_trial(cell, run) for cell in small for run in rng.sample(list(cells[cell]), count)]
    return [
        _trial(cell, run)
        for number, cell in enumerate(small)
        for run in _searched(kind, cells[cell], space_of(cells), count, 100 * seed + number)
    ]


def _searched(kind: str, runs: Sequence[Run], space: Mapping[str, Any], count: int, seed: int) -> list[Run]:
    """The runs that answered a search in one cell."""
    spec = SweepSpec(
        name="law",
        trainable="benchmarks.search:branin",
        param_space=dict(space),
        metric="loss",
        mode="min",
        num_samples=count,
        search=kind,
    )
    searcher, found = make_searcher(spec, seed), []
    for number in range(count):
        config = searcher.ask(number)
        assert config is not None, "the space is larger"
        found.append(nearest(runs, config["lr"], config["batch"]))
        searcher.tell(number, found[-1][2], "completed")
    return found


def _halved(
    cells: Mapping[Cell, Sequence[Run]], small: Sequence[Cell], count: int, rng: Random
) -> list[dict[str, Any]]:
    trials = []
    for size in sorted({cell[0] for cell in small}):
        rungs = sorted(cell for cell in small if cell[0] == size)
        running = rng.sample(list(cells[rungs[0]]), 2 * count)
        for cell in rungs:
            running = [nearest(cells[cell], lr, batch) for lr, batch, _ in running]
            trials += [_trial(cell, run) for run in running]
            running = sorted(running, key=lambda run: run[2])[: math.ceil(len(running) / 3)]
    return trials


def _shuffled(
    cells: Mapping[Cell, Sequence[Run]],
    small: Sequence[Cell],
    goals: Sequence[Cell],
    count: int,
    draws: int,
) -> float:
    """Of how many draws whose losses are shuffled inside cells the verdict is `carries`."""
    carries = 0
    for seed in range(draws):
        rng, trials = Random(seed), []
        for cell in small:
            runs = rng.sample(list(cells[cell]), count)
            losses = [run[2] for run in runs]
            rng.shuffle(losses)
            trials += [
                _trial(cell, (lr, batch, loss)) for (lr, batch, _), loss in zip(runs, losses, strict=True)
            ]
        law = fit(trials, space=space_of(cells), mode="min")
        carries += law.at({"params": goals[0][0], "tokens": goals[0][1]}).verdict == "carries"
    return round(carries / draws, 3)


def edges(
    cells: Mapping[Cell, Sequence[Run]],
    small: Sequence[Cell],
    goals: Sequence[Cell],
    count: int,
    draws: int,
) -> Json:
    """By parameter and side, of how many draws the verdict is `edge` where the space ends before the optimum.

    Only runs on one side of the best runs of all cells and the target remain.
    """
    found = {}
    for axis, name in enumerate(("lr", "batch")):
        for side in (-1, 1):
            verdicts = [
                _cut(cells, small, goal, axis, side, count, seed) for goal in goals for seed in range(draws)
            ]
            label = f"{name} ends {'below' if side < 0 else 'above'} the optimum"
            found[label] = round(verdicts.count("edge") / len(verdicts), 2)
    return found


def _cut(
    cells: Mapping[Cell, Sequence[Run]],
    small: Sequence[Cell],
    goal: Cell,
    axis: int,
    side: int,
    count: int,
    seed: int,
) -> str:
    """The verdict where the space has only values below (side -1) or above (1) all optima."""
    best = [side * min(cells[cell], key=lambda run: run[2])[axis] for cell in (*small, goal)]
    kept = {cell: [run for run in cells[cell] if side * run[axis] > max(best)] for cell in small}
    rng = Random(seed)
    trials = [
        _trial(cell, run) for cell in small for run in rng.sample(kept[cell], min(count, len(kept[cell])))
    ]
    space = space_of(kept) | {("batch", "lr")[axis]: space_of(cells)[("batch", "lr")[axis]]}
    return fit(trials, space=space, mode="min").at({"params": goal[0], "tokens": goal[1]}).verdict
