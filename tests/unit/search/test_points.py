"""`points`: what a person knows is run first, by every search, and by a sweep that was killed too."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from raysweep.errors import SpecError
from raysweep.search import WarmStart, make_searcher
from raysweep.search.machinery.points import FirstPoints
from raysweep.simulate import Kill, simulate
from raysweep.space.parsed import parse
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes

SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "net": {"depth": {"randint": [1, 9]}, "sizes": [{"choice": [8, 16]}, {"choice": [8, 16]}]},
    "act": {"choice": ["relu", {"kind": "elu", "a": 1}]},
    "fixed": 7,
    "double": {"sample_from": lambda config: config["net"]["depth"] * 2},
}
POINT: dict[str, Any] = {"lr": 0.01, "net": {"depth": 3, "sizes": [8, 16]}, "act": {"kind": "elu", "a": 1}}
SEARCHES: list[Any] = ["random", "tpe", "gp", "cma_es", "auto"]
LEAST: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "mode": "min", "seed": 3}


def spec_of(search: Any = "random", points: Any = (), samples: int = 6, space: Any = SPACE) -> SweepSpec:
    return SweepSpec(**LEAST, param_space=space, num_samples=samples, search=search, points=points)


def first_of(spec: SweepSpec, count: int, warm: WarmStart | None = None) -> list[Any]:
    searcher = make_searcher(spec, 3, warm)
    return [searcher.ask(number) for number in range(count)]


@pytest.mark.parametrize("search", SEARCHES)
def test_they_come_first_whatever_the_search(search: Any) -> None:
    """In their order, with constants and functions filled in; then the search, with so many fewer."""
    configs = first_of(spec_of(search, [POINT, POINT | {"lr": 0.02, "fixed": 7}]), 7)
    assert configs[0] == POINT | {"fixed": 7, "double": 6}
    assert configs[1] == POINT | {"fixed": 7, "double": 6, "lr": 0.02}
    assert None not in configs[:6]
    assert configs[6] is None
    assert configs[2]["lr"] not in (0.01, 0.02)


@pytest.mark.parametrize("search", ["tpe", "gp", "cma_es"])
def test_the_model_learns_from_them(search: str) -> None:
    """What comes next is what a search asks that had come to these configs by itself."""
    space = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
    points = [{"x": 0.8 + n / 500, "y": 0.2 - n / 500} for n in range(12)]
    given = make_searcher(spec_of(search, points, 14, space), 3)
    told, blank = (make_searcher(spec_of(search, (), 14, space), 3) for _ in range(2))
    for number in range(12):
        config = given.ask(number)
        assert config == points[number]
        told.restore(number, config)
        for searcher in (given, told):
            searcher.tell(number, config["x"], "completed")
    assert given.ask(12) == told.ask(12) != blank.ask(12)


def test_what_a_point_leaves_out_is_drawn_by_the_seed() -> None:
    spec = spec_of(points=[{"lr": 0.01}, {"net": {"depth": 2}}])
    first = first_of(spec, 2)
    assert first[0]["lr"] == 0.01
    assert first[1]["net"]["depth"] == 2
    assert first == first_of(spec, 2)
    assert first[0]["act"] in ("relu", {"kind": "elu", "a": 1})
    assert [c["lr"] for c in first] != [
        c["lr"] for c in (make_searcher(spec, 4).ask(n) or {} for n in (0, 1))
    ]


def test_a_function_may_be_given_its_value() -> None:
    assert first_of(spec_of(points=[POINT | {"double": 5}]), 1)[0]["double"] == 5


def test_of_a_grid_none_is_missing() -> None:
    space = {"g": {"grid_search": [1, 2, 3]}}
    configs = first_of(spec_of("grid", [{"g": 2}], 1, space), 5)
    assert [config and config["g"] for config in configs] == [2, 1, 2, 3, None]


@pytest.mark.parametrize("search", [{"random": {"distinct": True}}, "tpe"])
def test_a_discrete_space_does_not_repeat_them(search: Any) -> None:
    space = {"a": {"randint": [0, 3]}, "b": {"choice": ["p", "q"]}}
    points = [{"a": 2, "b": "p"}, {"a": 1, "b": "q"}]
    configs = first_of(spec_of(search, points, 9, space), 7)
    assert configs[:2] == points
    assert len({orjson.dumps(config) for config in configs[:6]}) == 6
    assert configs[6] is None


def test_a_champion_is_run_before_them() -> None:
    champion = POINT | {"lr": 0.05, "fixed": 7, "double": 6}
    configs = first_of(spec_of("tpe", [{"lr": 0.02}]), 3, WarmStart(first=champion))
    assert [config["lr"] for config in configs[:2]] == [0.05, 0.02]


@pytest.mark.parametrize("search", [each for each in SEARCHES if each != "gp"])
def test_a_killed_sweep_goes_on_with_the_next_point(search: Any) -> None:
    space = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
    points = [{"x": 0.1}, {"x": 0.2}, {"x": 0.3, "y": 0.4}]
    spec = spec_of(search, points, 6, space).replace(max_concurrent_trials=1)

    def run(*kills: Kill) -> list[Any]:
        simulated = simulate(spec, lambda c, step: {"m": c["x"]} if step < 3 else None, kills=kills)
        assert simulated.fired == kills
        return [(trial.config, trial.score) for trial in simulated.outcome.trials]

    whole = run()
    assert [config["x"] for config, _ in whole[:3]] == [0.1, 0.2, 0.3]
    for append in (3, 6, 9):
        assert run(Kill(when="after", append=append)) == whole


def test_a_function_that_fails_for_a_point_costs_that_trial_alone() -> None:
    space = {"x": {"uniform": [0, 1]}, "y": {"sample_from": lambda config: 1 / (config["x"] - 0.5)}}
    spec = spec_of("tpe", [{"x": 0.5}, {"x": 0.25}], 3, space)
    outcome = simulate(spec, lambda config, step: {"m": config["x"]} if step < 2 else None).outcome
    assert [trial.state for trial in outcome.trials] == ["failed", "completed", "completed"]
    assert outcome.trials[1].config["x"] == 0.25


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([{"lr": 0.5}], r"points\[0\]\.lr: 0\.5 is outside Float.*; change the point"),
        ([POINT, {"net": {"depth": 9}}], r"points\[1\]\.net\.depth: 9 is outside Integer"),
        ([{"act": "elu"}], r"points\[0\]\.act: 'elu' is outside Choice"),
        ([{"net": {"dept": 3}}], r"points\[0\]\.net\.dept: is not in param_space"),
        ([{"net": {"sizes": [8, 16, 32]}}], r"points\[0\]\.net\.sizes\.2: is not in param_space"),
        ([{"fixed": 8}], r"points\[0\]\.fixed: is fixed to 7, not 8"),
    ],
)
def test_a_point_outside_the_space_is_refused_before_the_start(points: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_searcher(spec_of(points=points), 3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"points": [{"lrr": 0.1}]}, r"points\[0\]: 'lrr' is not in param_space; did you mean 'lr'"),
        ({"points": {"lr": 0.1}}, r"points: expected a list of configs.*; write \[\{"),
        ({"points": [0.1]}, r"points\[0\]: expected a config, got 0\.1"),
        ({"points": [{}]}, r"points\[0\]: expected a config"),
        (
            {"points": [POINT] * 7},
            r"points: 7 configs are more .* 6; set num_samples to 7 or more",
        ),
        (
            {"points": [POINT], "search": {"configs": {"configs": [{"a": 1}]}}},
            r"points: cannot .* configs search",
        ),
    ],
)
def test_what_is_wrong_without_a_look_at_domains_is_told_at_once(fields: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        SweepSpec.from_any(LEAST | {"param_space": SPACE, "num_samples": 6} | fields)


def test_specs_without_points_are_written_as_before_there_were_any() -> None:
    spec = spec_of(points=[{"lr": 0.01}], space={"lr": SPACE["lr"]})
    assert SweepSpec.from_json(spec.to_json()) == spec
    assert SweepSpec.json_schema()["properties"]["points"]["type"] == "array"


def test_other_points_are_another_search() -> None:
    assert changes(spec_of(points=[POINT]), spec_of(points=[POINT | {"lr": 0.02}])).unsafe
    assert changes(spec_of(), spec_of(points=[POINT])).unsafe


@pytest.mark.parametrize(
    ("domain", "given", "value"),
    [
        ({"randint": [0, 10]}, 3.0, 3),
        ({"qlograndint": [1, 64, 2]}, 8.0, 8),
        ({"uniform": [0, 2]}, 1, 1.0),
        ({"randn": [0, 2]}, 1, 1.0),
        ({"choice": [1.0, 2.0]}, 1, 1.0),
        ({"choice": [1, 2]}, 2.0, 2),
        ({"choice": [1, 1.0]}, 1.0, 1.0),
    ],
)
def test_a_number_is_handed_out_as_its_domain_has_it(domain: Any, given: Any, value: Any) -> None:
    points = FirstPoints(parse({"n": domain}), [{"n": given}], 1)
    found = points.build(0)["n"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("given", [True, 3, 1.5, "1"])
def test_what_is_equal_to_no_choice_is_outside(given: Any) -> None:
    with pytest.raises(SpecError, match=r"points\[0\]\.n: .* is outside"):
        FirstPoints(parse({"n": {"choice": [1.0, 2.0]}}), [{"n": given}], 1)
