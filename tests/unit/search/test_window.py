"""Of very many results, models are made of the best and the newest: which ones, and from when on."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from statistics import NormalDist
from typing import Any

import pytest
from optuna.trial import TrialState

from raysweep.numeric.pareto import find_front
from raysweep.search import Result, Searcher, make_searcher, tell_end
from raysweep.search.bohb import BohbModel, BohbOptions, Density
from raysweep.search.machinery.window import Window
from raysweep.search.models.tpe import TpeModel
from raysweep.search.tpe import TpeOptions
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}


def spec(search: Any = "tpe", **fields: Any) -> SweepSpec:
    plain = {"name": "a", "trainable": "m:f", "param_space": SPACE, "metric": "loss", "mode": "min"}
    return SweepSpec(**plain | {"num_samples": 500, "search": search} | fields)


def kept(results: list[Result], size: int, *modes: str, order: Random | None = None) -> list[int]:
    window = Window(size, modes)
    told = list(enumerate(results))
    if order is not None:
        order.shuffle(told)
    for place, result in told:
        window.add(place, result)
        window.kept()
    return window.kept()


def test_the_best_third_and_the_newest_count() -> None:
    values = [Result(float(-place) if place % 2 else -100.0 - place) for place in range(29)]
    assert kept(values, 12, "max") == [1, 3, 5, 7, *range(21, 29)]
    assert kept(values, 29, "max") == list(range(29))
    assert len(kept(values, 28, "max")) == 28


def test_what_satisfies_the_constraints_is_better_than_what_does_not() -> None:
    results = [Result(0.0, (3.0,)), Result(0.0, (1.0,)), Result(9.0, (-1.0,)), *[Result(1.0, (2.0,))] * 20]
    assert kept(results, 6, "min")[:2] == [1, 2]


@pytest.mark.parametrize("modes", [("min",), ("min", "max"), ("min", "min", "min")])
def test_which_count_does_not_depend_on_when_they_were_told(modes: tuple[str, ...]) -> None:
    rng = Random(2)
    results = [
        Result(rng.random(), (rng.random() - 0.3,), tuple(rng.random() for _ in modes[1:])) for _ in range(60)
    ]
    first = kept(results, 20, *modes)
    assert len(first) == 20
    assert all(kept(results, 20, *modes, order=Random(seed)) == first for seed in range(5))


def test_a_front_stays_whole() -> None:
    rng = Random(1)
    points = [(rng.random(), rng.random()) for _ in range(400)]
    front = find_front(points)
    found = kept([Result(a, others=(b,)) for a, b in points], 40, "min", "min")
    assert 3 < len(front) <= 20
    assert set(front) <= set(found)
    assert len(found) == 40
    assert set(range(399, 399 - 10, -1)) <= set(found)


def test_of_a_front_that_is_too_large_its_ends_and_what_is_between_count() -> None:
    points = [Result(float(place), others=(-float(place),)) for place in range(100)]
    found = kept(points, 20, "min", "min")
    assert len(found) == 20
    assert found[0] == 0
    assert 99 in found
    assert max(b - a for a, b in pairwise(found)) <= 12


OBJECTIVES: dict[str, dict[str, Any]] = {
    "one": {},
    "constraints": {"constraints": ["size <= 1"]},
    "several": {"metric": ["loss", "size"], "mode": ["min", "max"]},
}


def told(searcher: Searcher, number: int, config: dict[str, Any], objective: str) -> None:
    value, size = (config["x"] - 0.3) ** 2 + config["y"], config["x"]
    result = {
        "one": Result(value),
        "constraints": Result(value, (size - 0.5,)),
        "several": Result(value, others=(size,)),
    }[objective]
    tell_end(searcher, number, result, state="completed")


def hunted(searcher: Searcher, objective: str, count: int, configs: list[dict[str, Any]]) -> None:
    """Until there are so many configs, with the last three still running."""
    while len(configs) < count:
        number = len(configs)
        config = searcher.ask(number)
        assert config is not None
        configs.append(config)
        if number >= 3:
            told(searcher, number - 3, configs[number - 3], objective)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_fewer_results_are_asked_as_ever_and_a_restart_changes_no_ask(objective: str) -> None:
    def made(size: int) -> Searcher:
        return make_searcher(spec({"tpe": {"max_results": size}}, **OBJECTIVES[objective]), 1)

    few: list[dict[str, Any]] = []
    every: list[dict[str, Any]] = []
    hunted(made(20), objective, 40, few)
    hunted(made(10**6), objective, 40, every)
    # Twenty results were there when the 24th config was asked for, and of twenty none is left out.
    assert few[:24] == every[:24]
    assert few != every
    rebuilt = made(20)
    for number, config in enumerate(few[:34]):
        rebuilt.restore(number, config)
    for number, config in enumerate(few[:31]):
        told(rebuilt, number, config, objective)
    configs = few[:34]
    hunted(rebuilt, objective, 40, configs)
    assert configs == few


def test_what_runs_is_looked_at_with_what_counts() -> None:
    model = TpeModel(spec().space, 3, "min", TpeOptions(max_results=12))
    for number in range(30):
        model.add(number, {("x",): number / 30, ("y",): 0.5})
        if number not in (4, 29):
            model.end(number, Result(float(number)) if number != 28 else None)
    trials = model.study_to_ask().get_trials()
    assert [trial.number for trial in trials] == [0, 1, 2, 3, 4, *range(20, 28), 29]
    running = [trial.number for trial in trials if trial.state == TrialState.RUNNING]
    assert running == [4, 29]
    assert model.sample(30, 0).keys() == {("x",), ("y",)}


def test_of_several_metrics_a_tenth_of_all_results_is_good_up_to_half_of_those_that_count() -> None:
    def good(results: int) -> int | None:
        model = TpeModel(spec().space, 3, ("min", "min"), TpeOptions(max_results=40))
        for number in range(results):
            model.add(number, {("x",): 0.5, ("y",): 0.5})
            model.end(number, Result(float(number), others=(float(-number),)))
        gamma = model.make_sampler(1)._gamma  # type: ignore[attr-defined]
        return None if gamma is None else int(gamma(40))

    assert [good(results) for results in (40, 41, 110, 300)] == [None, 5, 11, 20]


def test_earlier_results_count_too() -> None:
    model = TpeModel(spec().space, 3, "min", TpeOptions(max_results=12))
    for number in range(20):
        model.add_earlier({("x",): number / 30, ("y",): 0.5}, Result(float(number)))
    assert [trial.number for trial in model.study_to_ask().get_trials()] == [0, 1, 2, 3, *range(12, 20)]


def test_of_many_results_at_a_time_bohbs_densities_are_of_the_best_and_the_newest() -> None:
    model = BohbModel(
        spec("bohb", scheduler="hyperband").space, 1, "min", BohbOptions(max_results=12, top_n_percent=50)
    )
    for number in range(40):
        model.add(number, {("x",): number / 40, ("y",): 0.5})
        model.rung(number, 9, float(number))
    found = model._model()
    assert found is not None
    places = sorted(round(place[0] * 40) for density in found for place in density._places)
    assert places == [0, 1, 2, 3, *range(32, 40)]


def test_a_kernel_is_the_normal_distributions_to_the_last_bit() -> None:
    rng = Random(4)
    places = [(rng.random(), rng.random()) for _ in range(9)]
    density = Density(places, [0, 0], 1e-3)
    for _ in range(50):
        at = (rng.random(), rng.random())
        total = 0.0
        for middle in places:
            product = 1.0
            for a, b, width in zip(at, middle, density.bandwidths, strict=True):
                product *= NormalDist().pdf((a - b) / width) / width
            total += product
        assert density.at(at) == total / len(places)
    assert math.isfinite(density.at((0.5, 0.5)))
