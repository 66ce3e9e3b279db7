"""How often searches ask for what fails, and what they find, in spaces of which a part cannot run.

Three spaces: memory ends where larger is better; training diverges just above the best learning rates; a
corner of the space is forbidden, and a minimum would be in it. A trial that fails is told to a search of ours
as one that failed by its config, to Optuna's samplers as `TrialState.FAIL`. One trial at a time on a virtual
clock; seeds are paired. Random draws are those of the search `random`.

`failed` is the mean share of failed trials in the second half. `regret` is the best value found minus the
least that can run, the median over the seeds. Beside each of Optuna's samplers: `ratio` is its median regret
over the contender's (above 1: the contender is better), `wins` at how many seeds the contender found the
better value, `sign_test` the probability of so uneven a share by chance.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from benchmarks.hunts import beside
from benchmarks.measure import Json, significant, target
from benchmarks.search import branin
from raysweep.search import Result, make_searcher, tell_end
from raysweep.specs import SweepSpec

TRIALS: Final = 60
SEEDS: Final = 20
RANDOM: Final = "random"
OURS: Final = ("auto", "tpe", "gp", "cma_es", "nsga2")
OPTUNA_TPE: Final = "optuna TPE"
OPTUNA_GP: Final = "optuna GP"
THEIRS: Final = (OPTUNA_TPE, OPTUNA_GP)
MOST: Final = 0.6
"""The share of failed trials in the second half is at most so much of random's."""
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Configs with a value that is to be small, some of which fail: these have the value None."""

    domains: Mapping[str, Any]
    value: Callable[[Config], float | None]
    least: float
    """The least value of a config that runs."""


def memory(config: Config) -> float | None:
    """A network whose loss falls with its size, until 2 GB are full; the learning rate matters less."""
    width, depth, batch = config["width"], config["depth"], config["batch"]
    weights = 12 * width**2 * depth
    gigabytes = (16 * weights + 64 * width * depth * batch) / 1e9
    if gigabytes > 2:
        return None
    away = math.log10(config["lr"] / (3e-3 * (width / 512) ** -0.5 * (batch / 64) ** 0.25))
    return 1.7 + 40 * weights**-0.28 + 0.15 * away**2 + 0.02 * math.log2(batch / 64) ** 2


def divergence(config: Config) -> float | None:
    """Gradient descent that is best just below where it diverges: at large steps, more so with momentum."""
    momentum, warmup = config["momentum"], config["warmup"]
    step = math.log10(config["lr"] / (1 - momentum))
    edge = -0.5 + 0.6 * warmup + 0.3 * math.log10(config["batch"] / 64)
    if step > edge:
        return None
    return (
        0.3
        + 0.08 * (edge - 0.15 - step) ** 2
        + 0.3 * (momentum - 0.9) ** 2
        + 0.05 * (warmup - 0.3) ** 2
        + 0.004 * math.log2(config["batch"] / 128) ** 2
    )


def corner(config: Config) -> float | None:
    """Branin's function, without the quarter of its range that has two of its three minima."""
    if config["x"] > 1 and config["y"] < 7:
        return None
    return branin((config["x"], config["y"]))


SPACES: Final = {
    "memory": Space(
        domains={
            "width": {"lograndint": [32, 4097]},
            "depth": {"randint": [1, 33]},
            "batch": {"lograndint": [8, 1025]},
            "lr": {"loguniform": [1e-5, 1e-1]},
        },
        value=memory,
        least=1.91663935,
    ),
    "divergence": Space(
        domains={
            "lr": {"loguniform": [1e-4, 10.0]},
            "momentum": {"uniform": [0.0, 0.99]},
            "warmup": {"uniform": [0.0, 1.0]},
            "batch": {"lograndint": [16, 1025]},
        },
        value=divergence,
        least=0.3,
    ),
    "corner": Space(
        domains={"x": {"uniform": [-5.0, 10.0]}, "y": {"uniform": [0.0, 15.0]}},
        value=corner,
        least=0.39788735772973816,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one search found: the share of failed trials in its second half, and its regret."""

    failed: float
    regret: float


def run(rounds: int, *, seeds: int = SEEDS, trials: int = TRIALS, ours: Sequence[str] = OURS) -> Json:
    """Failed trials and regrets by space and contender; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    spaces = {name: compare(space, seeds, trials, ours) for name, space in SPACES.items()}
    return {
        "trials": trials,
        "seeds": seeds,
        "load": round(os.getloadavg()[0], 1),
        "spaces": spaces,
        "targets": [each for name, shown in spaces.items() for each in _targets(name, shown, ours)],
    }


def compare(space: Space, seeds: int, trials: int, ours: Sequence[str] = OURS) -> Json:
    """One space: what each contender did, ours beside Optuna's samplers."""
    kinds = (RANDOM, *THEIRS, *ours)
    found = {kind: [search(kind, space, seed, trials) for seed in range(seeds)] for kind in kinds}
    regrets = {kind: [each.regret for each in runs] for kind, runs in found.items()}
    shown: Json = {}
    for kind, runs in found.items():
        shown[kind] = {
            "failed": round(fmean(each.failed for each in runs), 3),
            "regret": significant(median(regrets[kind])),
        }
        if kind in ours:
            shown[kind] |= {f"beside {other}": beside(regrets[kind], regrets[other]) for other in THEIRS}
    return shown


def search(kind: str, space: Space, seed: int, trials: int) -> Found:
    """Search by `kind`, a search of ours or a sampler of Optuna's."""
    values = (_optunas if kind in THEIRS else _ours)(kind, space, seed, trials)
    half = values[len(values) // 2 :]
    ran = [value for value in values if value is not None]
    return Found(
        failed=sum(value is None for value in half) / len(half),
        regret=min(ran, default=math.inf) - space.least,
    )


def _targets(name: str, shown: Json, ours: Sequence[str]) -> list[Json]:
    most = MOST * shown[RANDOM]["failed"]
    shares = [
        target(f"{name}: {kind}, failed trials in the second half", shown[kind]["failed"], at_most=most)
        for kind in ours
    ]
    if "auto" not in ours:
        return shares
    return shares + [
        target(
            f"{name}: auto, times as good as {other}", shown["auto"][f"beside {other}"]["ratio"], at_least=1.0
        )
        for other in THEIRS
    ]


def _ours(kind: str, space: Space, seed: int, trials: int) -> list[float | None]:
    spec = SweepSpec(
        name="search",
        trainable="benchmarks.search:branin",
        param_space=dict(space.domains),
        metric="loss",
        mode="min",
        num_samples=trials,
        search=kind,
    )
    searcher, values = make_searcher(spec, seed), []
    for number in range(trials):
        config = searcher.ask(number)
        assert config is not None, "the space is larger"
        value = space.value(config)
        values.append(value)
        if value is None:
            tell_end(searcher, number, None, state="infeasible")
        else:
            tell_end(searcher, number, Result(value), state="completed")
    return values


def _optunas(kind: str, space: Space, seed: int, trials: int) -> list[float | None]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    make = optuna.samplers.TPESampler if kind == OPTUNA_TPE else optuna.samplers.GPSampler
    study, values = optuna.create_study(sampler=make(seed=seed)), []
    for _ in range(trials):
        trial = study.ask()
        value = space.value({name: _suggest(trial, name, at) for name, at in space.domains.items()})
        values.append(value)
        if value is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)
    return values


def _suggest(trial: Any, name: str, domain: Mapping[str, Any]) -> Any:
    ((kind, (low, high)),) = domain.items()
    is_log = kind.startswith("log")
    if kind.endswith("uniform"):
        return trial.suggest_float(name, low, high, log=is_log)
    return trial.suggest_int(name, low, high - 1, log=is_log)
