"""Failed trials teach a search: it asks for fewer configs that fail, and for the same where none fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import pytest

from raysweep.search import Searcher, make_searcher
from raysweep.search.base import Result, tell_end
from raysweep.search.machinery import model as machinery
from raysweep.search.machinery.feasible import ENOUGH, REDRAWS, Failures, columns_of
from raysweep.search.models.feasibility import MOST, fit
from raysweep.space.parsed import parse
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}, "kind": {"choice": ["a", "b"]}}
SEARCHES = ["tpe", "cma_es", "nsga2"]
Config = Mapping[str, Any]


def make(search: Any, space: dict[str, Any] = SPACE, samples: int = 60, **fields: Any) -> Searcher:
    spec = SweepSpec.model_validate(
        {"name": "s", "trainable": "m:f", "param_space": space, "metric": "m", "mode": "min"}
        | {"num_samples": samples, "search": search}
        | fields
    )
    return make_searcher(spec, 3)


def play(
    searcher: Searcher, trials: int, fails: Callable[[Config], bool], end: Any = "infeasible"
) -> list[tuple[Config, bool]]:
    """Larger is better, until it fails."""
    played = []
    for number in range(trials):
        config = searcher.ask(number)
        assert config is not None
        has_failed = fails(config)
        if has_failed:
            tell_end(searcher, number, None, state=end)
        else:
            tell_end(searcher, number, Result(-config["x"] - 0.1 * config["y"]), state="completed")
        played.append((config, has_failed))
    return played


def too_large(config: Config) -> bool:
    return bool(config["x"] > 0.6)


def share(played: list[tuple[Config, bool]]) -> float:
    half = played[len(played) // 2 :]
    return sum(has_failed for _, has_failed in half) / len(half)


@pytest.mark.parametrize("search", ["tpe", "cma_es", "nsga2", {"tpe": {"n_startup_trials": 3}}])
def test_where_no_config_fails_draws_are_those_of_a_search_without_a_model_of_failures(
    search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draws() -> list[tuple[Config, bool]]:
        searcher = make(search)
        tell_end(searcher, 0, None, state="failed")  # of a config that could not be made
        return play(searcher, 25, lambda config: config["x"] > 0.9, "failed")

    found = draws()
    monkeypatch.setattr(machinery, "failures_of", lambda model, setup: None)
    assert draws() == found


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_asks_for_fewer_configs_that_fail(search: str) -> None:
    learnt = share(play(make(search), 60, too_large))
    assert learnt < 0.6 * share(play(make(search), 60, too_large, "failed"))


@pytest.mark.parametrize("search", SEARCHES)
def test_it_avoids_a_choice_that_fails_also_where_the_model_does_not_know_choices(search: str) -> None:
    assert share(play(make(search), 60, lambda config: config["kind"] == "b")) < 0.1


@pytest.mark.parametrize("search", SEARCHES)
def test_it_avoids_a_side_of_a_simplex_that_fails(search: str) -> None:
    space = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}, "mix": {"simplex": ["a", "b", "c"]}}

    def is_unmixed(config: Config) -> bool:
        return bool(config["mix"]["a"] > 0.3)

    assert share(play(make(search, space), 60, is_unmixed)) < 0.6 * 0.49, "a random draw fails with 0.49"


def test_bohb_avoids_it_too() -> None:
    assert share(play(make("bohb", scheduler="hyperband"), 60, too_large)) < 0.2


@pytest.mark.parametrize(
    "fields",
    [
        {"repeat": {"times": 2}},
        {"points": [{"x": 0.1}]},
        {"search": {}},
        {"search": "auto", "param_space": {"x": {"choice": [0.1, 0.3, 0.5, 0.7, 0.9]}} | {"y": SPACE["y"]}},
    ],
    ids=["repeat", "points", "left open", "auto"],
)
def test_a_searcher_in_another_one_learns_of_it(fields: dict[str, Any]) -> None:
    space = fields.pop("param_space", SPACE)
    searcher = make(fields.pop("search", "tpe"), space, samples=30, **fields)
    if space is not SPACE:  # the Gaussian process of `auto` would take too long
        assert hasattr(searcher, "tell_infeasible")
        return
    assert share(play(searcher, 30, too_large)) < 0.35


class Recorder:
    """A model that keeps what it is told."""

    substitution = None
    paths: frozenset[Any] = frozenset({("x",)})

    def __init__(self) -> None:
        self.told: dict[int, list[float | None]] = {}

    def end(self, number: int, result: Result | None) -> None:
        self.told.setdefault(number, []).append(None if result is None else result.value)


def failures(mode: str = "min") -> tuple[Recorder, Failures]:
    model = Recorder()
    found = Failures(parse({"x": {"uniform": [0, 1]}}), model, (mode,))
    for number in range(6):
        found.add(number, {("x",): number / 10})
    return model, found


def test_a_model_receives_the_worst_result_and_again_where_it_has_changed() -> None:
    model, found = failures()
    found.fail(3)
    found.settle()
    assert model.told == {}, "there is no result to be as bad as"
    found.note(0, Result(1.0))
    found.settle()
    found.settle()
    assert model.told == {3: [1.0]}
    found.note(1, Result(0.5))
    found.settle()
    assert model.told == {3: [1.0]}
    found.note(2, Result(7.0))
    found.fail(4)
    found.settle()
    assert model.told == {3: [1.0, 7.0], 4: [7.0]}
    found.note(2, Result(2.0))  # it had paused, and continued
    found.settle()
    assert model.told == {3: [1.0, 7.0, 2.0], 4: [7.0, 2.0]}


def test_the_worst_is_that_of_each_metric_and_constraint_and_finite_where_there_is_one() -> None:
    model = Recorder()
    found = Failures(parse({"x": {"uniform": [0, 1]}}), model, ("max", "min"))
    for number in range(4):
        found.add(number, {("x",): number / 10})
    told: list[Result] = []
    model.end = lambda number, result: told.append(result)  # type: ignore[method-assign, assignment, return-value]
    found.note(0, Result(5.0, (1.0, -2.0), (9.0,)))
    found.note(1, Result(3.0, (-1.0, 4.0), (8.0,)))
    found.note(2, Result(float("-inf"), (0.0, 0.0), (99.0,)))
    found.fail(3)
    found.settle()
    assert told == [Result(3.0, (1.0, 4.0), (9.0,))]


def test_the_order_in_which_ends_are_told_does_not_matter() -> None:
    chosen = set()
    for order in permutations(range(4)):
        _, found = failures()
        for number in order:
            if number in (1, 3):
                found.fail(number)
            else:
                found.note(number, Result(float(number)))
        found.settle()
        values = found.choose(5, lambda redraw: {("x",): 0.3 - 0.02 * redraw})
        chosen.add(values[("x",)])
    assert len(chosen) == 1


@pytest.mark.parametrize(
    ("places", "chosen", "draws"),
    [
        ((0.5, 0.45, 0.4, 0.12, 0.3, 0.3, 0.3), 0.12, 4),  # drawn anew until one is likely to run
        ((0.5, 0.45, 0.4, 0.5, 0.16, 0.4, 0.45), 0.16, REDRAWS + 1),  # or else the likeliest
    ],
)
def test_what_is_likely_to_fail_is_drawn_anew(places: tuple[float, ...], chosen: float, draws: int) -> None:
    _, found = failures()
    for number in (0, 1):
        found.note(number, Result(1.0))
    for number in (2, 3, 4, 5):
        found.fail(number)
    found.settle()
    asked: list[int] = []

    def draw(redraw: int) -> dict[Any, Any]:
        asked.append(redraw)
        return {("x",): places[redraw]}

    assert found.choose(5, draw) == {("x",): chosen}
    assert asked == list(range(draws))


def test_what_is_likely_to_run_is_taken_at_once() -> None:
    _, found = failures()
    found.note(0, Result(1.0))
    found.note(1, Result(1.0))
    found.fail(5)
    found.settle()
    assert found.choose(9, lambda redraw: {("x",): 0.05 + redraw}) == {("x",): 0.05}


def test_chances_follow_the_labels_and_only_the_coordinate_that_counts() -> None:
    points = [(x / 6, y / 6) for x in range(7) for y in range(7)]
    found = fit({n: (point, point[0] < 0.6) for n, point in enumerate(points)})
    assert found is not None
    for y in (0.05, 0.55, 0.95):
        assert found.chance((0.2, y)) > ENOUGH
        assert found.chance((0.9, y)) < 0.25
    assert found.scales[1] > found.scales[0]


def test_nothing_is_fitted_before_a_failure_and_of_very_many_labels_the_newest_of_each() -> None:
    assert fit({}) is None
    assert fit({0: ((0.5,), True)}) is None
    assert fit({0: ((), False)}) is None, "there are no coordinates"
    labels = {n: ((n % 100 / 100,), n % 100 < 50) for n in range(1000)}
    found = fit(labels)
    assert found is not None
    assert len(found.points) == 2 * MOST


def test_coordinates_of_each_kind_of_leaf() -> None:
    space = parse(
        {
            "lr": {"loguniform": [1e-4, 1]},
            "n": {"randint": [0, 4]},
            "size": {"choice": [64, 16, 256]},
            "kind": {"choice": ["a", "b"]},
            "flag": {"choice": [True, False]},
            "noise": {"randn": [0, 1]},
            "one": {"choice": ["only"]},
        }
    )
    columns = {path[0]: each for path, each in columns_of(space.searched).items()}
    assert "one" not in columns
    assert columns["lr"](1e-2) == pytest.approx((0.5,))
    assert columns["n"](0) == (0.125,)
    assert [columns["size"](value) for value in (16, 64, 256)] == [(0.0,), (0.5,), (1.0,)]
    assert columns["kind"]("b") == (0.0, 1.0)
    assert columns["flag"](True) == (1.0, 0.0)
    assert columns["noise"](0.0) == (0.5,)
    absent = {name: each(None) for name, each in columns.items()}
    assert absent["lr"] == absent["n"] == absent["size"] == absent["noise"] == (0.5,)
    assert absent["kind"] == (0.0, 0.0)
