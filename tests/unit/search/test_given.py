"""Configs that a search did not suggest: points, a champion's, anchors; kills change nothing about them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.runs.policies import load_policies
from raysweep.search import Searcher, WarmStart, make_searcher, tell_end
from raysweep.search.base import Result
from raysweep.search.machinery.anchors import Anchors
from raysweep.search.spec import SearchSpec
from raysweep.simulate import Simulated
from raysweep.specs import SweepSpec
from tests.sampling import examples, sampled
from tests.unit.simulate.exactness import BOHB, Exact, kills_of
from tests.unit.simulate.sweeps import make_spec, shown

HERE = "tests.unit.ray_searchers"
POINTS = [{"x": 0.25}, {"x": 0.75}, {"x": 0.5}]
CHOICES = {"x": {"choice": [number / 12 for number in range(12)]}}
SEVERAL = {"metric": ["loss", "size"], "mode": ["min", "max"]}
# Each is asked often enough after the points that its model, or its sequence, is past its beginning.
SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"search": "random"},
    "grid": {
        "search": "grid",
        "num_samples": 1,
        "param_space": {"x": {"grid_search": [number / 12 for number in range(12)]}},
    },
    "tpe": {"search": {"tpe": {"n_startup_trials": 4}}},
    "gp": {"search": {"gp": {"n_startup_trials": 5}}, "num_samples": 9},
    "cma_es": {"search": {"cma_es": {"population_size": 4}}},
    "auto": {"search": {"auto": {"switch_after": 10}}, "num_samples": 13, "param_space": CHOICES},
    "nsga2": {"search": {"nsga2": {"population_size": 4}}},
    "nsga3": {"search": {"nsga3": {"population_size": 4}}, **SEVERAL},
    "bohb": {**BOHB["bohb"], "scheduler": {"hyperband": {"max_t": 9, "reduction_factor": 2}}},
    "open": {"search": {}, "param_space": CHOICES | {"y": {"choice": ["a", "b"]}}},
    "repeated": {
        "search": {f"{HERE}:Learns": {}},
        "repeat": {"times": 2, "seed_param": "seed"},
        "num_samples": 6,
    },
    "climbs": {"search": f"{HERE}:Climbs"},
    "learns": {"search": {f"{HERE}:Learns": {"width": 0.1}}},
}
# The others are killed with points in `test_points`, in fewer places.
DAILY = ("nsga3", "open", "repeated", "climbs", "learns")


def spec_of(name: str) -> SweepSpec:
    fields = {"num_samples": 12, "points": POINTS, "max_concurrent_trials": 1, **SEARCHES[name]}
    if fields.get("param_space") is not None and name != "open":
        fields["points"] = [{"x": 3 / 12}, {"x": 9 / 12}]
    elif name == "open":
        fields["points"] = [{"x": 3 / 12}]
    return make_spec(**fields)


@cache
def undisturbed(name: str) -> tuple[Exact, Simulated]:
    exact = Exact(name, "flaky", spec_of(name), save_every=2)
    return exact, exact.run()


def test_each_search_is_here() -> None:
    """But a list of configs, which has its own."""
    assert SearchSpec.kinds.keys() - {"configs"} <= SEARCHES.keys()


@pytest.mark.parametrize("name", sampled(SEARCHES, lambda name: name in DAILY))
def test_with_points_killed_anywhere_it_goes_on_with_the_same_configs(name: str) -> None:
    exact, expected = undisturbed(name)
    times = 1 if exact.spec.repeat is None else exact.spec.repeat.times
    first = [trial.config["x"] for trial in expected.outcome.trials[::times]][: len(exact.spec.points)]
    assert first == [point["x"] for point in exact.spec.points]
    kills = kills_of(expected)
    # After the points, and anywhere.
    chosen = [Random(name).choice(kills[len(kills) // 2 :]), *Random(name).sample(kills, examples(1))]
    for kill in chosen:
        simulated = exact.run(kill)
        assert simulated.fired == (kill,)
        assert shown(simulated) == shown(expected), f"{name}: {kill}"


def searcher(name: str, warm: WarmStart | None = None, **fields: Any) -> Searcher:
    spec = make_spec(search={f"{HERE}:{name}": {"width": 0.1}}, num_samples=12, **fields)
    load_policies(spec)
    return make_searcher(spec, 1, warm)


def test_a_searcher_of_rays_learns_from_what_it_was_given_and_did_not_suggest() -> None:
    points = [{"x": x} for x in (0.9, 0.4, 0.1, 0.2)]
    found = searcher("Learns", points=points)
    assert [found.ask(number) for number in range(4)] == points
    found.tell(0, 0.5, "completed")
    found.tell(1, 0.5, "completed")
    found.tell(2, 0.0, "failed")
    found.tell(3, float("nan"), "completed")
    found.tell(0, 0.5, "completed")
    config = found.ask(4)
    assert config is not None
    assert abs(config["x"] - 0.4) <= 0.05, "near to what it was told of last"
    assert found.take_remark() is None


def test_one_that_cannot_be_told_of_it_goes_on_without_and_says_so_once() -> None:
    found, blank = (searcher("Climbs", points=points) for points in ([{"x": 0.9}, {"x": 0.8}], []))
    assert [found.ask(0), found.ask(1)] == [{"x": 0.9}, {"x": 0.8}]
    found.tell(0, 0.1, "completed")
    found.tell(1, 0.2, "completed")
    said = "search: Climbs cannot receive configs that it did not suggest: it does not learn from these"
    assert found.take_remark() == said
    assert found.ask(2) == blank.ask(0), "as if they had never been"


def test_a_champion_is_given_too() -> None:
    found = searcher("Learns", WarmStart(first={"x": 0.7}), points=[{"x": 0.1}])
    assert [found.ask(0), found.ask(1)] == [{"x": 0.7}, {"x": 0.1}]
    again = searcher("Learns", WarmStart(first={"x": 0.7}), points=[{"x": 0.1}])
    for number, x in enumerate((0.7, 0.1)):
        again.restore(number, {"x": x})
        for each in (found, again):
            each.tell(number, x, "completed")
    assert found.ask(2) == again.ask(2)


def warm_of() -> WarmStart:
    """Anchors that will agree: the past is told once they have run."""
    told = tuple(({"x": n / 10}, n / 10) for n in range(6))
    anchors = Anchors(configs=tuple({"x": n / 10} for n in (0, 2, 3, 5)), runs=(0,) * 6)
    return WarmStart(told=told, anchors=anchors, sources=("n1",))


def test_what_is_suggested_beside_anchors_is_given_to_the_searcher_that_comes_after_them() -> None:
    """It would not suggest that: it knows the past, which the one before did not."""
    plays = []
    for crash in (None, 3, 5, 7, 9):
        found, asked = searcher("Learns", warm_of()), []
        events = [*((n, True) for n in range(6)), *((n, False) for n in range(6)), (6, True), (6, False)]
        for at, (number, is_ask) in enumerate([*events, (7, True)]):
            if at == crash:
                found = searcher("Learns", warm_of())
                for earlier, was_ask in events[:at]:
                    if was_ask:
                        found.restore(earlier, asked[earlier])
                    else:
                        tell_end(found, earlier, Result(asked[earlier]["x"]), state="completed")
            if is_ask:
                config = found.ask(number)
                assert config is not None
                asked.append(config)
            else:
                tell_end(found, number, Result(asked[number]["x"]), state="completed")
        plays.append(asked)
    assert all(play == plays[0] for play in plays)
    assert [config["x"] for config in plays[0][:4]] == [0.0, 0.2, 0.3, 0.5]


def test_with_anchors_one_that_cannot_be_told_of_the_past_is_refused_before_they_run() -> None:
    with pytest.raises(SpecError, match=r"^warm_start: Climbs cannot learn from earlier runs; leave warm_st"):
        searcher("Climbs", warm_of())
