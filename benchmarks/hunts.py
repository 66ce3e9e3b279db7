"""One search after the least of something, by a search of ours or by Optuna's default, on a virtual clock.

A trial takes no time, one runs at a time, and its result is the problem's value. A search of ours is asked
and told as by a controller; Optuna's default sampler drives a study of its own with Optuna's `ask` and
`tell`, over the same domains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any, Final

from benchmarks.measure import Json
from raysweep.search import Result, make_searcher, tell_end
from raysweep.specs import SweepSpec

OPTUNA: Final = "optuna"
Step = tuple[float, float]
"""What all trials cost so far, and the regret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be small, of configs of a space: `{"uniform": [low, high]}` and `{"choice": [...]}`."""

    space: Mapping[str, Any]
    value: Callable[[Mapping[str, Any]], float]
    minimum: float = 0.0
    cost: Callable[[Mapping[str, Any]], float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """What was found: the regret in the end, and the seconds of processor time that it all took."""

    regret: float
    took_s: float


def hunt(kind: str, problem: Problem, seed: int, trials: int) -> Hunt:
    """Search by `kind`, a search of ours or `OPTUNA`."""
    began = process_time()
    found = values(kind, problem, seed, trials)
    return Hunt(regret=min(found) - problem.minimum, took_s=process_time() - began)


def values(kind: str, problem: Problem, seed: int, trials: int) -> list[float]:
    """The value of each trial of a search, in their order."""
    return (_optunas if kind == OPTUNA else _ours)(kind, problem, seed, trials)


def trace(search: Any, problem: Problem, seed: int, most: int, budget: float = math.inf) -> list[Step]:
    """Search until costs have passed a budget; after each trial, what all cost so far, and the regret.

    Args:
        search: as in a spec.
        problem: one with costs.
        seed: of the search.
        most: no more trials than these.
        budget: in the unit of the costs.
    """
    assert problem.cost is not None, "it has costs"
    spec = _spec(search, problem, most)
    searcher, steps = make_searcher(spec, seed), [(0.0, math.inf)]
    asks_for_costs = spec.search.options.costs_by is not None
    while len(steps) <= most and steps[-1][0] <= budget:
        number = len(steps) - 1
        config = searcher.ask(number)
        assert config is not None, "the space is larger"
        cost, value = problem.cost(config), problem.value(config)
        spent, best = steps[-1]
        steps.append((spent + cost, min(best, value - problem.minimum)))
        result = Result(value, cost=cost if asks_for_costs else None)
        tell_end(searcher, number, result, state="completed")
    return steps


def regret_at(steps: Sequence[Step], budget: float) -> float:
    """The regret of what ended within a budget."""
    return next(best for spent, best in reversed(steps) if spent <= budget)


def beside(found: Sequence[float], theirs: Sequence[float]) -> Json:
    """Regrets by seed beside those of another: how many times as good the median is, and who won."""
    wins = sum(a < b for a, b in zip(found, theirs, strict=True))
    losses = sum(a > b for a, b in zip(found, theirs, strict=True))
    return {
        "ratio": float(f"{max(median(theirs), 1e-12) / max(median(found), 1e-12):.3g}"),
        "wins": f"{wins}/{len(found)}",
        "sign_test": float(f"{sign_test(wins, losses):.2g}"),
    }


def sign_test(wins: int, losses: int) -> float:
    """The probability of so uneven a share, or a more uneven one, if both were equally good."""
    count, most = wins + losses, max(wins, losses)
    tail = sum(math.comb(count, k) for k in range(most, count + 1)) / 2**count
    return min(1.0, 2 * tail)


def _ours(kind: str, problem: Problem, seed: int, trials: int) -> list[float]:
    searcher, found = make_searcher(_spec(kind, problem, trials), seed), []
    for number in range(trials):
        config = searcher.ask(number)
        if config is None:
            break
        found.append(problem.value(config))
        searcher.tell(number, found[-1], "completed")
    return found


def _spec(search: Any, problem: Problem, trials: int) -> SweepSpec:
    return SweepSpec(
        name="search",
        trainable="benchmarks.search:branin",
        param_space=dict(problem.space),
        metric="loss",
        mode="min",
        num_samples=trials,
        search=search,
    )


def _optunas(_: str, problem: Problem, seed: int, trials: int) -> list[float]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    found = []
    for _ in range(trials):
        trial = study.ask()
        found.append(problem.value({name: _suggest(trial, name, at) for name, at in problem.space.items()}))
        study.tell(trial, found[-1])
    return found


def _suggest(trial: Any, name: str, domain: Mapping[str, Any]) -> Any:
    if "uniform" in domain:
        return trial.suggest_float(name, *domain["uniform"])
    return trial.suggest_categorical(name, domain["choice"])
