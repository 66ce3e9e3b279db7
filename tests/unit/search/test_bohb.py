"""BOHB: by the rules that were published, from the rungs that the core tells of."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from scipy import integrate

from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.errors import SpecError
from raysweep.search import Searcher, make_searcher
from raysweep.search.bohb import BohbModel, BohbOptions, Density
from raysweep.specs import SweepSpec
from tests.unit.core.sweep import running

SPACE: dict[str, Any] = {"x": {"uniform": [0, 1]}, "kind": {"choice": ["a", "b", "c"]}}


def spec(space: dict[str, Any] | None = None, **fields: Any) -> SweepSpec:
    plain = {"name": "a", "trainable": "m:f", "param_space": space or SPACE, "metric": "loss", "mode": "min"}
    return SweepSpec(**plain | {"num_samples": 200, "search": "bohb", "scheduler": "hyperband"} | fields)


def model(space: dict[str, Any] | None = None, mode: str = "min", **options: Any) -> BohbModel:
    return BohbModel(spec(space).space, 1, mode, BohbOptions(**options))


def fill(found: BohbModel, time: float, count: int, first: int = 0) -> None:
    """Results at a time: the nearer to x = 0.3 and kind b, the better."""
    rng = Random(time)
    for number in range(first, first + count):
        x, kind = rng.random(), rng.choice("abc")
        found.add(number, {("x",): x, ("kind",): kind})
        found.rung(number, time, (x - 0.3) ** 2 + (kind != "b"))


def drawn(found: BohbModel, first: int = 1000) -> list[dict[Any, Any]]:
    return [found.sample(number, 0) for number in range(first, first + 60)]


def test_a_density_is_one_in_all() -> None:
    places = [(0.2, 0.0), (0.4, 1.0), (0.7, 1.0), (0.3, 2.0)]
    density = Density(places, [0, 3], 1e-3)
    total = sum(
        integrate.quad(lambda x, kind=kind: density.at((x, float(kind))), -4, 5, limit=200)[0]
        for kind in range(3)
    )
    assert total == pytest.approx(1.0, abs=1e-6)


def test_bandwidths_are_by_the_normal_reference_rule() -> None:
    """1.06 s n^(-1 / (4 + d)), worked out by hand: of 0.2, 0.4, 0.6 s is 0.1633; n is 3, d is 2."""
    density = Density([(0.2, 0.5), (0.4, 0.5), (0.6, 0.5)], [0, 0], 1e-3)
    assert density.bandwidths == pytest.approx([1.06 * 0.163299 * 3 ** (-1 / 6), 1e-3], rel=1e-5)


def test_draws_are_cut_off_at_the_edges_and_change_choices_as_often_as_the_bandwidth_says() -> None:
    density = Density([(0.02, 1.0), (0.98, 1.0), (0.5, 0.0)], [0, 3], 1e-3)
    rng = Random(1)
    places = [density.draw(rng, 3.0, 1e-3) for _ in range(3000)]
    assert all(0.0 <= x <= 1.0 for x, _ in places)
    assert min(x for x, _ in places) < 0.05
    # Two of three middles are 1; each is drawn anew, of three, with the bandwidth's chance.
    width = density.bandwidths[1]
    expected = 2 / 3 * (1 - width) + width / 3
    assert sum(kind == 1.0 for _, kind in places) / 3000 == pytest.approx(expected, abs=0.03)


def test_the_longest_time_that_has_results_enough_counts() -> None:
    """In two dimensions four results make a model."""
    found = model(random_fraction=0.0)
    fill(found, 1, 3)
    at_random = drawn(found)
    assert at_random == drawn(model(random_fraction=0.0)), "three are too few"
    fill(found, 1, 40, first=3)
    near = [abs(each["x",] - 0.3) for each in drawn(found)]
    assert sum(near) / len(near) < 0.2
    assert sum(each["kind",] == "b" for each in drawn(found)) > 45
    for number in range(40):  # given longer, the other end is better: as soon as there are four results
        if number == 3:
            assert [abs(each["x",] - 0.3) for each in drawn(found)] == near
        x, kind = found._places[number]
        found.rung(number, 3, (x - 0.9) ** 2 + (kind != 2.0))
    assert sum(each["x",] > 0.5 for each in drawn(found)) > 35


def test_for_max_the_largest_are_good() -> None:
    least, most = (model({"x": {"uniform": [0, 1]}}, mode, random_fraction=0.0) for mode in ("min", "max"))
    for found in (least, most):
        for number in range(40):
            found.add(number, {("x",): number / 40})
            found.rung(number, 1, number / 40)
    assert sum(each["x",] for each in drawn(least)) < 20 < 40 < sum(each["x",] for each in drawn(most))


@pytest.mark.parametrize(("fraction", "low", "high"), [(1 / 3, 0.15, 0.55), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
def test_so_many_configs_are_random(fraction: float, low: float, high: float) -> None:
    found, at_random = (model(random_fraction=each) for each in (fraction, 1.0))
    fill(found, 1, 60)
    fill(at_random, 1, 60)
    same = sum(a == b for a, b in zip(drawn(found), drawn(at_random), strict=True))
    assert low <= same / 60 <= high


def test_the_first_result_at_a_time_counts_and_the_order_does_not_matter() -> None:
    one, other = model(), model()
    fill(one, 1, 30)
    fill(other, 1, 30)
    other.rung(3, 1, -5.0)
    results = [(number, time, value) for time, each in one._results.items() for number, value in each.items()]
    third = model()
    for number, place in one._places.items():
        third._places[number] = place
    for number, time, value in reversed(results):
        third.rung(number, time, value)
    assert drawn(one) == drawn(other) == drawn(third)


def searcher(**fields: Any) -> Searcher:
    return make_searcher(spec(**fields), 1)


def test_rungs_reach_the_model_through_all_that_stands_before_it() -> None:
    for fields in ({}, {"points": [{"x": 0.5}]}):
        told, untold = searcher(**fields), searcher(**fields)
        configs = [told.ask(number) for number in range(30)]
        assert configs == [untold.ask(number) for number in range(30)]
        for number, config in enumerate(configs):
            assert config is not None
            told.tell_rung(number, 1.0, config["x"])
        for each in (told, untold):
            for number in range(30):
                each.tell(number, 0.0, "stopped")
        assert [told.ask(number) for number in range(30, 40)] != [
            untold.ask(number) for number in range(30, 40)
        ]


def test_the_core_tells_of_each_comparison_and_of_the_last_time_and_notes_both() -> None:
    halving = {"hyperband": {"max_t": 3}}
    sweep = running(3, search="bohb", scheduler=halving)
    for trial, values in enumerate(((0.5,), (0.4,), (0.6,))):
        assert cmd.TellRung(trial=trial, time=1.0, value=values[0]) in sweep.report(trial, *values)
    assert sweep.state.search.rungs == [(0, 1.0, 0.5), (1, 1.0, 0.4), (2, 1.0, 0.6)]
    assert SweepState.from_json(sweep.state.to_json()).search.rungs == sweep.state.search.rungs
    last = running(1, search="bohb", scheduler={"hyperband": {"max_t": 1}})
    assert cmd.TellRung(trial=0, time=1.0, value=0.2) in last.report(0, 0.2), "it has done all its work"
    other = running(3, search="random", scheduler=halving)
    assert not [each for each in other.report(0, 0.5) if isinstance(each, cmd.TellRung)]
    assert not other.state.search.rungs


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"scheduler": "fifo"},
            r"^search: bohb requires scheduler: hyperband .got fifo.; set",
        ),
        ({"warm_start": {"anchors": 4}}, r"^warm_start: anchors are for .* 'bohb' learns from rungs"),
        ({"metric": ["a", "b"], "mode": ["min", "min"]}, r"^(search|scheduler): "),
    ],
)
def test_what_it_cannot_do_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(**fields)


def test_a_space_of_branches_alone_and_a_grid_are_refused() -> None:
    with pytest.raises(SpecError, match="bohb models parameters that every config has"):
        searcher(space={"m": {"choice": {"a": {"u": {"uniform": [0, 1]}}, "b": {}}}})
    with pytest.raises(SpecError, match=r"^param_space\.x: grid_search cannot be combined with the bohb"):
        searcher(space={"x": {"grid_search": [1, 2]}})


def test_relations_are_honoured() -> None:
    space = {"low": {"uniform": [0, 1]}, "high": {"uniform": [0, 1]}}
    found = searcher(space=space, where=["low < high"])
    for number in range(60):
        config = found.ask(number)
        assert config is not None
        assert config["low"] < config["high"]
        found.tell_rung(number, 1.0, config["high"])


def test_without_a_number_it_goes_on_as_one_of_many_samples_does() -> None:
    endless, many = searcher(num_samples=None, stop={"time_budget_s": 60}), searcher()
    for each in (endless, many):
        for number in range(20):
            each.ask(number)
            each.tell_rung(number, 1.0, number / 20)
    assert endless.total is None
    assert [endless.ask(number) for number in range(20, 30)] == [many.ask(number) for number in range(20, 30)]


def test_of_branches_it_models_what_every_config_has() -> None:
    space = {"x": {"uniform": [0, 1]}, "m": {"choice": {"a": {"u": {"uniform": [0, 1]}}, "b": {}}}}
    found = searcher(space=space)
    configs = [found.ask(number) for number in range(40)]
    for number, config in enumerate(configs):
        assert config is not None
        found.tell_rung(number, 1.0, config["x"] + ("b" in config["m"]))
    later = [config for number in range(40, 80) if (config := found.ask(number)) is not None]
    assert {frozenset(config["m"]) for config in later} <= {frozenset("a"), frozenset("b")}
    assert sum("a" in config["m"] for config in later) > 25
    assert all(set(config["m"].get("a", {"u": 0})) == {"u"} for config in later)


def test_numbers_stay_finite_at_the_edges() -> None:
    density = Density([(0.0,), (0.0,), (0.0,)], [0], 1e-3)
    assert math.isfinite(density.at((1.0,)))
    assert all(0 <= density.draw(Random(seed), 3.0, 1e-3)[0] < 0.02 for seed in range(50))
