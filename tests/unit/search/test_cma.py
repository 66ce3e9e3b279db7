"""CMA-ES: the textbook's generations one trial at a time, and results that come late, fail or diverge."""

from __future__ import annotations

import math
from typing import Any

import cmaes
import numpy as np
import pytest

from raysweep.search import Searcher, make_searcher
from raysweep.search.base import derived_seed
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {"x": {"uniform": [-1, 3]}, "y": {"loguniform": [1e-4, 1.0]}}


def make(samples: int = 400, space: dict[str, Any] = SPACE, mode: str = "min", **options: Any) -> Searcher:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "mode": mode}
    search = {"cma_es": options}
    return make_searcher(SweepSpec(**fields, param_space=space, num_samples=samples, search=search), 3)


def asked(searcher: Searcher, number: int) -> dict[str, Any]:
    config = searcher.ask(number)
    assert config is not None
    return config


def loss(config: dict[str, Any]) -> float:
    return float((config["x"] - 1.3) ** 2 + (math.log10(config["y"]) + 2) ** 2)


def places(config: dict[str, Any]) -> Any:
    return np.array([(config["x"] + 1) / 4, (math.log10(config["y"]) + 4) / 4])


def test_one_trial_at_a_time_it_is_the_package_itself() -> None:
    """The same generations, told as a loop of the package's documentation tells them."""
    searcher = make(restarts=False, population_size=6)
    optimizer = cmaes.CMA(
        mean=np.full(2, 0.5),
        sigma=1 / 6,
        bounds=np.array([[0.0, 1.0]] * 2),
        n_max_resampling=20,
        population_size=6,
    )
    solutions: list[tuple[Any, float]] = []
    for number in range(60):
        config = asked(searcher, number)
        optimizer.reseed_rng(derived_seed(3, number, 0) % 2**32)
        assert places(config) == pytest.approx(optimizer.ask(), abs=1e-9), number
        searcher.tell(number, loss(config), "completed")
        solutions.append((places(config), loss(config)))
        if len(solutions) == 6:
            optimizer.tell(solutions)
            solutions = []


@pytest.mark.parametrize("mode", ["min", "max"])
def test_it_converges_in_the_right_direction(mode: str) -> None:
    searcher = make(mode=mode, restarts=False)
    found = []
    for number in range(200):
        config = asked(searcher, number)
        found.append(loss(config))
        searcher.tell(number, found[-1] if mode == "min" else -found[-1], "completed")
    assert min(found[:20]) > 1e-6 > max(found[-6:])


def test_a_late_result_counts_where_its_number_stands() -> None:
    """What is asked after it is what would have been asked had it come in time."""
    late, timely = make(population_size=4), make(population_size=4)
    for number in range(12):
        config = asked(late, number)
        timely.restore(number, config)
        if number != 2:
            late.tell(number, loss(config), "completed")
    held_back = asked(late, 12)
    timely.restore(12, held_back)
    late.tell(2, 0.5, "completed")
    for number in range(12):
        timely.tell(number, 0.5 if number == 2 else loss(asked_config(timely, number)), "completed")
    assert asked(late, 13) == asked(timely, 13)


def test_asking_leaves_a_generation_as_it_was() -> None:
    """The next one is computed from it, and may not depend on whether it was asked: a rebuilt one was not."""
    searcher: Any = make(population_size=4, restarts=False)
    for number in range(8):
        searcher.tell(number, loss(asked(searcher, number)), "completed")
    optimizer = searcher._model._optimizer()
    assert vars(optimizer)["_B"] is None, "what asking leaves behind"
    for number in range(8, 11):
        asked(searcher, number)
    assert searcher._model._optimizer() is optimizer
    assert vars(optimizer)["_B"] is None


def asked_config(searcher: Any, number: int) -> dict[str, Any]:
    x, y = searcher._model._places[number]
    return {"x": float(x) * 4 - 1, "y": 10 ** (float(y) * 4 - 4)}


def test_failed_trials_are_in_no_generation() -> None:
    """With every third trial failing it finds the optimum all the same."""
    searcher, best = make(), math.inf
    for number in range(240):
        config = asked(searcher, number)
        has_failed = number % 3 == 1
        best = best if has_failed else min(best, loss(config))
        searcher.tell(number, None if has_failed else loss(config), "failed" if has_failed else "completed")
    assert best < 1e-6


def test_results_that_diverge_are_the_worst_and_break_nothing() -> None:
    searcher, best = make(), math.inf
    for number in range(200):
        config = asked(searcher, number)
        value = math.inf if config["x"] > 1.5 else loss(config)
        best = min(best, value)
        searcher.tell(number, value, "completed")
    assert best < 1e-4


def test_converged_it_begins_anew_elsewhere() -> None:
    """On a function with many minima, more of the space is seen than without restarts."""

    def reach(restarts: bool) -> float:
        searcher, xs = make(samples=500, restarts=restarts, population_size=4), []
        for number in range(500):
            config = asked(searcher, number)
            searcher.tell(number, loss(config), "completed")
            xs.append(config["x"])
        return max(xs[250:]) - min(xs[250:])

    assert reach(restarts=False) < 0.01 < 1.0 < reach(restarts=True)


def test_earlier_results_are_where_it_begins() -> None:
    near, far = make(), make()
    for step in range(40):
        config = {"x": 1.2 + step * 0.005, "y": 0.009 + step * 0.00005}
        near.tell_earlier(config, loss(config))
    distance = [np.mean([loss(asked(searcher, number)) for number in range(20)]) for searcher in (near, far)]
    assert distance[0] < distance[1] / 2


def test_one_earlier_result_is_the_middle_of_the_first_generation() -> None:
    searcher = make(sigma0=0.01)
    searcher.tell_earlier({"x": 2.5, "y": 0.5}, 1.0)
    assert all(abs(asked(searcher, number)["x"] - 2.5) < 0.3 for number in range(10))


def test_choices_and_normals_are_drawn_beside_it() -> None:
    space = SPACE | {"c": {"choice": ["a", "b"]}, "n": {"randn": [0, 1]}, "k": {"randint": [0, 9]}}
    searcher = make(60, space)
    seen = []
    for number in range(60):
        seen.append(asked(searcher, number))
        searcher.tell(number, loss(seen[-1]) + abs(seen[-1]["k"] - 5), "completed")
    assert {config["c"] for config in seen} == {"a", "b"}
    assert np.mean([abs(config["k"] - 5) for config in seen[-12:]]) < 2.2


def test_a_space_without_numbers_is_drawn() -> None:
    searcher = make(2, {"c": {"choice": ["a", "b"]}})
    assert {asked(searcher, number)["c"] for number in range(2)} == {"a", "b"}
