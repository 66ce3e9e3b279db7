"""A search for each scale: order, best configs that go up, results that go up, restarts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from raysweep.errors import SampleFromError
from raysweep.search import Searcher, WarmStart, make_searcher
from raysweep.search.machinery.asking import ask_configs
from raysweep.specs import SweepSpec
from raysweep.testing.searcher_contract import SearcherContract

Config = dict[str, Any]
SCALES = [{"rows": 100}, {"rows": 200}, {"rows": 400, "share": 0.25}]


def make(search: Any = "random", warm: WarmStart | None = None, **fields: Any) -> Searcher:
    plain: dict[str, Any] = {
        "name": "s",
        "trainable": "m:f",
        "param_space": {"lr": {"loguniform": [1e-4, 1]}, "kind": {"choice": ["a", "b"]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 32,
        "scales": SCALES,
        "search": search,
    }
    return make_searcher(SweepSpec.model_validate(plain | fields), 5, warm)


def loss(config: Config) -> float:
    return abs(config["lr"] - 0.01) + (0.1 if config["kind"] == "a" else 0.0) + 100 / config["rows"]


def play(searcher: Searcher, score: Callable[[Config], float] = loss, count: int = 40) -> list[Config]:
    played = []
    for number in range(count):
        config = searcher.ask(number)
        if config is None:
            break
        played.append(config)
        searcher.tell(number, score(config), "completed")
    return played


def at(played: list[Config], rows: int) -> list[Config]:
    return [
        {name: value for name, value in config.items() if name != "rows"}
        for config in played
        if config["rows"] == rows
    ]


class TestScaledRandom(SearcherContract):
    trials = 30

    def make_searcher(self) -> Searcher:
        return make("random")


@pytest.mark.slow
class TestScaledTpe(SearcherContract):
    trials = 30

    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4}})


class TestScaledTpeWithSmoothScores(SearcherContract):
    trials = 30

    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4}})

    def score(self, config: Config) -> float:
        return loss(config)


class TestScaledAndRepeated(SearcherContract):
    trials = 24

    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4}}, repeat=2, num_samples=16)


class TestScaledFewConfigs(SearcherContract):
    trials = 30

    def make_searcher(self) -> Searcher:
        return make({"random": {"distinct": True}}, param_space={"k": {"choice": [1, 2, 3, 4, 5]}})


@pytest.mark.parametrize("search", ["random", "tpe", {}])
def test_the_smaller_scales_run_first_and_each_gets_its_share(search: Any) -> None:
    searcher = make(search)
    played = play(searcher)
    assert [config["rows"] for config in played] == [100] * 12 + [200] * 12 + [400] * 8
    assert searcher.total == len(played) == 32


def test_a_larger_scale_begins_with_the_best_of_the_one_below() -> None:
    played = play(make("random"))
    below, here = at(played, 100), at(played, 200)
    assert here[0] == min(below, key=lambda config: loss({**config, "rows": 100}))
    assert here[1:] != below[1:], "it draws configs of its own"
    assert not [config for config in here[1:] if config in below]


def test_a_search_that_learns_is_told_what_agrees_at_the_level_of_the_larger_scale() -> None:
    searcher, remarks = make({"tpe": {"n_startup_trials": 4}}), []
    for number in range(32):
        config = searcher.ask(number)
        assert config is not None
        remarks.append(searcher.take_remark())  # type: ignore[attr-defined]
        searcher.tell(number, loss(config), "completed")
    told = [remark for remark in remarks if remark]
    assert told[0] == "rows=200: 9 results of rows=100 count, corrected (agreement 1.00)"
    assert len(told) == 2


def test_what_does_not_agree_is_not_told() -> None:
    searcher = make({"tpe": {"n_startup_trials": 4}})
    play(searcher, lambda config: loss(config) * (1 if config["rows"] != 200 else -1), count=24)
    assert not searcher.take_remark()  # type: ignore[attr-defined]


def test_late_results_of_the_scale_below_count_as_after_a_restart() -> None:
    searcher = make({"tpe": {"n_startup_trials": 4}})
    configs = [searcher.ask(number) for number in range(13)]
    assert all(configs)
    for number in [*range(9), 12]:
        searcher.tell(number, loss(configs[number] or {}), "completed")
    for number in (13, 14, 15):
        configs.append(searcher.ask(number))
        searcher.tell(number, loss(configs[number] or {}), "completed")
    for number in (9, 10, 11):  # these come last
        searcher.tell(number, loss(configs[number] or {}), "completed")
    rebuilt = make({"tpe": {"n_startup_trials": 4}})
    for number in range(16):
        rebuilt.restore(number, dict(configs[number] or {}))
        rebuilt.tell(number, loss(configs[number] or {}), "completed")
    for number in range(16, 20):
        asked = searcher.ask(number)
        assert rebuilt.ask(number) == asked
        for each in (searcher, rebuilt):
            each.tell(number, loss(asked or {}), "completed")


def test_more_samples_go_to_the_smallest_scale_that_lacks_some() -> None:
    played = play(make("random", num_samples=8))
    more = make("random", num_samples=16)
    for number, config in enumerate(played):
        more.restore(number, config)
        more.tell(number, loss(config), "completed")
    later = [more.ask(number) for number in range(8, 16)]
    assert [config["rows"] for config in later if config] == [100] * 3 + [200] * 3 + [400] * 2


def test_earlier_nights_are_told_to_their_scale_and_the_champion_is_first() -> None:
    champion = {"lr": 0.5, "kind": "a", "rows": 400}
    told = (({"lr": 0.02, "kind": "b", "rows": 100}, 0.1), ({"lr": 0.02, "kind": "b", "rows": 400}, 0.1))
    searcher = make({"tpe": {"n_startup_trials": 4}}, WarmStart(first=champion, told=told))
    played = play(searcher)
    assert played[0] == {**champion, "rows": 100}
    assert at(played, 200)[0] == min(at(played, 100), key=lambda config: loss({**config, "rows": 100}))


def test_points_run_at_the_smallest_scale() -> None:
    played = play(make("random", points=[{"lr": 0.3}]))
    assert played[0]["lr"] == 0.3
    assert played[0]["rows"] == 100


def sometimes(spec: Any) -> float:
    if spec.config.lr > 0.01:
        raise ValueError("too large")
    return float(spec.config.lr)


def test_configs_that_cannot_be_made_cost_their_own_trials() -> None:
    space = {"lr": {"loguniform": [1e-4, 1]}, "twice": {"sample_from": f"{__name__}:sometimes"}}
    searcher = make("random", param_space=space)
    answer = ask_configs(searcher, 0, 32)
    assert len(answer.configs) == 32
    assert 0 < len(answer.failed) < 32
    assert all(isinstance(error, SampleFromError) for _, error in answer.failed)
    assert [config["rows"] for config in answer.configs] == [100] * 12 + [200] * 12 + [400] * 8


def test_an_ask_that_gives_nothing_is_passed_over_also_after_a_restart() -> None:
    from raysweep.search.machinery.scaled import Part, ScaledSearcher

    class Odd(Searcher):
        is_adaptive, note, total = False, None, None

        def ask(self, number: int) -> Config:
            if number == 1:
                raise RuntimeError("none")
            return {"x": number, "rows": 1}

        def restore(self, number: int, config: Config) -> None: ...
        def tell(self, number: int, value: float | None, state: str) -> None: ...

    def fresh() -> ScaledSearcher:
        return ScaledSearcher([Part({"rows": 1}, 4, Odd)], learns=False, is_max=False)  # type: ignore[arg-type]

    first = fresh()
    assert first.ask(0) == {"x": 0, "rows": 1}
    with pytest.raises(RuntimeError):
        first.ask(1)
    assert first.ask(2) == {"x": 2, "rows": 1}
    again = fresh()
    again.restore(0, {"x": 0, "rows": 1})
    again.replay_failed(1)
    again.restore(2, {"x": 2, "rows": 1})
    assert again.ask(3) == first.ask(3) == {"x": 3, "rows": 1}
    assert again.ask(4) is None


@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_any_order_of_ends_gives_what_a_restart_gives(width: int) -> None:
    chance = random.Random(width)
    searcher = make({"tpe": {"n_startup_trials": 4}})
    played: list[Config] = []
    told: list[int] = []
    running: list[int] = []
    for number in range(32):
        while len(running) >= width:
            told.append(running.pop(chance.randrange(len(running))))
            searcher.tell(told[-1], loss(played[told[-1]]), "completed")
        config = searcher.ask(number)
        assert config is not None
        if number % 3 == 0:
            rebuilt = make({"tpe": {"n_startup_trials": 4}})
            for earlier, before in enumerate(played):
                rebuilt.restore(earlier, dict(before))
                if earlier in told:
                    rebuilt.tell(earlier, loss(before), "completed")
            assert rebuilt.ask(number) == config
        played.append(config)
        running.append(number)
