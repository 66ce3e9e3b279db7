"""Every search draws points of a simplex, continues as it did after a restart, and begins with priors."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.search import Searcher, make_searcher
from raysweep.search.machinery.beliefs import JUDGED, KEPT, is_turn
from raysweep.search.machinery.warm_start import WarmStart, refit
from raysweep.search.registry import KINDS
from raysweep.simulate import simulate
from raysweep.space.parsed import normalise, parse
from raysweep.specs import SweepSpec

MIX = {"simplex": ["web", "code", "math"], "min": 0.05}
SPACE: dict[str, Any] = {"mix": MIX, "lr": {"loguniform": [1e-4, 1e-1]}}
BRANCHES: dict[str, Any] = {
    "data": {"choice": {"mixed": {"mix": MIX}, "web": {"n": {"randint": [1, 9]}}}},
    "lr": {"loguniform": [1e-4, 1e-1]},
}
SEARCHES = tuple(kind for kind in KINDS if kind not in ("grid", "configs"))
BELIEVING = ("auto", "random", "tpe", "gp", "bohb", "cma_es", "nsga2")
SCHEDULERS = {"bohb": {"hyperband": {"max_t": 9}}}
COUNT = 20


def spec_of(search: Any, space: dict[str, Any], count: int = COUNT, **more: Any) -> SweepSpec:
    metrics = ["m", "k"] if search == "nsga3" else "m"
    return SweepSpec(
        name="s",
        trainable="m:f",
        param_space=space,
        metric=metrics,
        mode=["min", "min"] if search == "nsga3" else "min",
        num_samples=count,
        search=search,
        scheduler=SCHEDULERS.get(str(search), "fifo"),
        **more,
    )


def value(config: dict[str, Any]) -> float:
    mix = config["mix"] if "mix" in config else config["data"].get("mixed", {}).get("mix", {"web": 0.5})
    return float(abs(mix["web"] - 0.7) + config["lr"])


def play(searcher: Searcher, count: int, first: int = 0) -> list[dict[str, Any]]:
    configs = []
    for number in range(first, count):
        config = searcher.ask(number)
        assert config is not None
        configs.append(config)
        searcher.tell(number, value(config), "completed")
    return configs


def check(mix: dict[str, float], least: float = 0.05) -> None:
    assert list(mix) == ["web", "code", "math"]
    assert abs(sum(mix.values()) - 1) < 1e-9
    assert min(mix.values()) >= least


@pytest.mark.parametrize(
    "search", [pytest.param(each, marks=pytest.mark.slow if each == "auto" else ()) for each in SEARCHES]
)
def test_each_config_sums_to_one_and_a_restart_goes_on_as_before(search: str) -> None:
    spec = spec_of(search, SPACE)
    whole = play(make_searcher(spec, 5), COUNT)
    for config in whole:
        check(config["mix"])
    assert len({str(config["mix"]) for config in whole}) > COUNT // 2
    again = make_searcher(spec, 5)
    for number, config in enumerate(whole[:14]):
        again.restore(number, config)
        again.tell(number, value(config), "completed")
    assert play(again, COUNT, 14) == whole[14:]


@pytest.mark.parametrize("search", ["random", "tpe", "cma_es"])
def test_two_hundred_draws(search: str) -> None:
    for config in play(make_searcher(spec_of(search, {**SPACE, "w": MIX | {"step": 0.05}}, 200), 1), 200):
        check(config["mix"])
        check(config["w"])
        assert all(share * 20 == pytest.approx(round(share * 20)) for share in config["w"].values())


@pytest.mark.parametrize("search", [each for each in SEARCHES if each not in ("nsga3",)])
def test_a_simplex_in_a_branch(search: str) -> None:
    configs = play(make_searcher(spec_of(search, BRANCHES), 5), COUNT)
    taken = [config["data"]["mixed"]["mix"] for config in configs if "mixed" in config["data"]]
    assert 0 < len(taken) < COUNT
    for mix in taken:
        check(mix)


@pytest.mark.parametrize("search", ["tpe", "gp", "cma_es"])
def test_a_model_learns_where_on_the_simplex_it_is_good(search: str) -> None:
    configs = play(make_searcher(spec_of(search, {"mix": MIX, "lr": 1e-3}, 60), 5), 60)
    late = sorted(abs(config["mix"]["web"] - 0.7) for config in configs[30:])
    others = play(make_searcher(spec_of("random", {"mix": MIX, "lr": 1e-3}, 60), 5), 60)
    drawn = sorted(abs(config["mix"]["web"] - 0.7) for config in others[30:])
    assert late[15] < 0.5 * drawn[15]


def test_a_grid_walks_the_points_of_the_step() -> None:
    space = {"mix": MIX | {"step": 0.25}, "x": {"grid_search": [1, 2]}}
    for search, given in (
        ("grid", space),
        ("grid", {"mix": space["mix"]}),
    ):
        searcher = make_searcher(spec_of(search, given, 1), 5)
        count = 6 if "x" in given else 3
        assert searcher.total == count
        configs = [searcher.ask(number) for number in range(count)]
        assert len({str(config) for config in configs}) == count
        assert searcher.ask(count) is None


def test_a_sweep_knows_how_many_points_it_has() -> None:
    space = {"mix": MIX | {"step": 0.25}, "x": {"grid_search": [1, 2]}}
    spec = spec_of("grid", space, 200, stop={"target": 9}, max_concurrent_trials=1)
    outcome = simulate(spec, lambda config, iteration: {"m": float(iteration)}).outcome
    assert len(outcome.trials) < 1200
    assert outcome.wanted_trials == 1200


def test_a_grid_without_a_step_is_refused() -> None:
    for space in (
        {"mix": MIX},
        {"mix": MIX, "x": {"grid_search": [1]}},
        {"m": {"grid_search": {"a": {"x": MIX}, "b": 1}}},
    ):
        with pytest.raises(SpecError, match="a simplex without a step has no points that 'grid' could walk"):
            spec_of("grid", space, 1)
    with pytest.raises(SpecError, match="walks at most"):
        spec_of("grid", {"mix": {"simplex": list("abcdefgh"), "step": 0.01}}, 1)


def test_distinct_points_of_a_step_run_once() -> None:
    for search in ({"random": {"distinct": True}}, "tpe"):
        searcher = make_searcher(spec_of(search, {"mix": MIX | {"step": 0.25}, "lr": 1}, 9), 5)
        assert searcher.total == 3
        assert len({str(config) for config in play(searcher, 3)}) == 3


@pytest.mark.parametrize("search", ["tpe", "random"])
def test_points_and_earlier_configs_are_points_of_the_simplex(search: str) -> None:
    points = [{"mix": {"web": 1 / 3, "code": 1 / 3, "math": 1 / 3}}]
    first, second = play(make_searcher(spec_of(search, SPACE, 2, points=points), 5), 2)
    check(first["mix"])
    assert first["mix"]["web"] == pytest.approx(1 / 3)
    for wrong, problem in (
        ({"web": 0.5, "code": 0.4, "math": 0.3}, "points[0].mix: its parts sum to 1.2, not to 1"),
        ({"web": 0.5, "code": 0.5}, "points[0].mix: it lacks math"),
    ):
        with pytest.raises(SpecError) as raised:
            make_searcher(spec_of(search, SPACE, 2, points=[{"mix": wrong}]), 5)
        assert str(raised.value).startswith(problem)
    warm = WarmStart(told=((second, 0.5), (first, 0.3)), first=second)
    assert make_searcher(spec_of(search, SPACE, 2), 5, warm).ask(0) == second
    space = parse(normalise(SPACE))
    assert refit(space, second) == second
    with pytest.raises(ValueError, match="outside tonight's space"):
        refit(space, {**second, "mix": {"web": 1.0, "code": 0.0, "math": 0.0}})


# -- priors -------------------------------------------------------------------------------------------------

BELIEF: dict[str, Any] = {
    "lr": {"loguniform": [1e-5, 1e-1], "prior": {"normal": 3e-4, "sigma": 0.1}},
    "kind": {"choice": ["a", "b", "c"], "prior": {"b": 1}},
    "x": {"uniform": [0, 1]},
}


def is_believed(config: dict[str, Any]) -> bool:
    return 2e-4 < config["lr"] < 4.5e-4 and config["kind"] == "b"


def far_from_belief(config: dict[str, Any]) -> float:
    return float(abs(config["lr"] - 0.05) + (config["kind"] == "b"))


@pytest.mark.parametrize("search", BELIEVING)
def test_the_first_trial_is_the_belief_and_some_of_the_others_are_drawn_by_it(search: str) -> None:
    searcher, configs = make_searcher(spec_of(search, BELIEF, 40), 5), []
    for number in range(40):
        config = searcher.ask(number)
        assert config is not None
        configs.append(config)
        searcher.tell(number, far_from_belief(config), "completed")
    assert (configs[0]["lr"], configs[0]["kind"]) == (3e-4, "b")
    turns = [number for number in range(40) if is_turn(number, KEPT)] if search == "random" else [0, 2, 4]
    assert all(is_believed(configs[number]) for number in turns)
    # They are wrong: a search that learns leaves them, and nothing else comes from there.
    assert sum(map(is_believed, configs)) <= len(turns) + 3
    assert len({config["x"] for config in configs}) > 8


@pytest.mark.parametrize("search", BELIEVING)
def test_a_restart_with_priors_goes_on_as_before(search: str) -> None:
    spec = spec_of(search, BELIEF, 20)
    whole = make_searcher(spec, 7)
    configs: list[Any] = []
    for number in range(20):
        configs.append(whole.ask(number))
        whole.tell(number, far_from_belief(configs[-1]), "completed")
    again = make_searcher(spec, 7)
    for number in range(9):
        again.restore(number, configs[number])
        again.tell(number, far_from_belief(configs[number]), "completed")
    for number in range(9, 20):
        assert again.ask(number) == configs[number]
        again.tell(number, far_from_belief(configs[number]), "completed")


@pytest.mark.parametrize(("mode", "count"), [("min", 9), ("max", 3)])
def test_a_search_that_learns_keeps_to_priors_that_hold(mode: str, count: int) -> None:
    spec = spec_of("tpe", BELIEF, 40).replace(mode=mode)
    searcher, believed = make_searcher(spec, 5), 0
    for number in range(40):
        config = searcher.ask(number)
        assert config is not None
        is_good = is_believed(config)
        believed += is_good and is_turn(number)
        searcher.tell(number, 0.1 if is_good and number not in (0, 2) else 0.5 - is_good, "completed")
    assert believed == pytest.approx(count, abs=1)


def test_cma_takes_its_first_trials_by_priors_only_where_they_are_the_best_of_a_generation() -> None:
    def after(believed: float | None) -> dict[str, Any] | None:
        searcher = make_searcher(spec_of("cma_es", BELIEF, 40), 5)
        for number in range(20):
            config = searcher.ask(number)
            assert config is not None
            result = believed if number in JUDGED else 0.5 + config["x"]
            searcher.tell(number, result, "failed" if result is None else "completed")
        return searcher.ask(20)

    assert after(9.0) == after(None) != after(0.1)


def test_the_share_of_the_priors_decays() -> None:
    turns = [number for number in range(1000) if is_turn(number)]
    assert turns[:4] == [0, 2, 4, 8]
    assert [sum(turn < count for turn in turns) for count in (10, 50, 100, 1000)] == [4, 9, 13, 44]
    assert sum(is_turn(number, KEPT) for number in range(1000)) == pytest.approx(200, abs=2)


def test_a_prior_of_branches_takes_the_branch_with_its_parameters() -> None:
    space = {
        "m": {
            "choice": {"svm": {"c": {"uniform": [0, 1]}}, "net": {"w": {"randint": [1, 9]}}},
            "prior": {"net": 1},
        }
    }
    for search in ("tpe", "random", "gp"):
        given = space | {"y": {"uniform": [0, 1]}}
        configs = []
        searcher = make_searcher(spec_of(search, given, 12), 5)
        for number in range(12):
            configs.append(searcher.ask(number))
            searcher.tell(number, 1.0, "completed")
        assert all("w" in config["m"]["net"] for at, config in enumerate(configs) if config and is_turn(at))


def test_each_point_of_a_grid_has_samples_by_the_priors() -> None:
    space = BELIEF | {"g": {"grid_search": [1, 2]}}
    searcher = make_searcher(spec_of("random", space, 10), 5)
    found = [searcher.ask(number) for number in range(20)]
    believed = [config["g"] for config in found if config and is_believed(config)]
    assert believed.count(1) == believed.count(2) >= 4


def test_a_used_up_prior_leaves_the_rest_of_a_discrete_space() -> None:
    space = {"k": {"choice": [1, 2, 3, 4], "prior": [1, 0, 0, 0]}}
    searcher = make_searcher(spec_of("tpe", space, 9), 5)
    assert searcher.total == 4
    found = [searcher.ask(number) for number in range(4)]
    assert sorted(config["k"] for config in found if config) == [1, 2, 3, 4]
