"""DEHB: by the rules that were published, with numbers that were worked out by hand."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers.machinery.brackets import Brackets
from raysweep.search import Searcher, make_searcher
from raysweep.search.base import Result
from raysweep.search.dehb import DehbModel, DehbOptions
from raysweep.specs import SweepSpec

X, Y = ("x",), ("y",)
SPACE: dict[str, Any] = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}


def spec(space: dict[str, Any] | None = None, **fields: Any) -> SweepSpec:
    plain = {"name": "a", "trainable": "m:f", "param_space": space or SPACE, "metric": "loss", "mode": "min"}
    pair = {"search": "dehb", "scheduler": {"dehb": {"max_t": 9}}}
    return SweepSpec(**plain | {"num_samples": 100} | pair | fields)


def searcher(space: dict[str, Any] | None = None, **fields: Any) -> Searcher:
    return make_searcher(spec(space, **fields), 1)


def model(max_t: float = 9, mode: str = "min", **options: Any) -> DehbModel:
    return DehbModel(spec().space, 1, mode, DehbOptions(**options), Brackets(max_t, 3))


def put(found: DehbModel, number: int, x: float, y: float, loss: float) -> None:
    found.add(number, {X: x, Y: y})
    found.end(number, Result(loss))


def drawn(found: DehbModel, number: int, attempt: int = 0) -> tuple[float, float]:
    values = found.sample(number, attempt)
    return values[X], values[Y]


def test_brackets_are_those_of_the_authors() -> None:
    """For 27 and 3: 27, 9, 3, 1; then 9, 3, 1; 6, 2; and 4, as floor(4 / (s + 1)) 3^s says."""
    brackets = Brackets(27, 3)
    assert brackets.times == [1, 3, 9, 27]
    assert brackets.length == 40 + 13 + 8 + 4
    assert brackets.populations == [27, 9, 6, 4]
    assert [brackets.time(number) for number in (0, 26, 27, 36, 39, 40, 52, 53, 61, 64, 65)] == (
        [1, 1, 3, 9, 27, 3, 27, 9, 27, 27, 1]
    )
    assert [brackets.place(number).pool for number in (0, 27, 36, 39, 40, 53, 59)] == [27, 9, 3, 1, 9, 6, 2]
    assert [brackets.place(number).is_first for number in (0, 27, 40, 49, 61)] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_each_place_of_a_population_is_competed_for_in_turn() -> None:
    brackets = Brackets(9, 3)  # 9, 3, 1; 3, 1; 3
    assert brackets.length == 20
    assert brackets.populations == [9, 3, 3]
    places = [brackets.place(number) for number in range(60)]
    for rung, size in enumerate(brackets.populations):
        slots = [place.slot for place in places if place.rung == rung]
        assert slots == [turn % size for turn in range(len(slots))]
    assert [place.band for place in places] == [0] * 20 + [1] * 20 + [2] * 20


def test_a_single_rung_evolves_too() -> None:
    found = model(1, crossover_prob=1.0)
    assert Brackets(1, 3).populations == [1]
    for number in range(5):
        x, y = drawn(found, number)
        assert 0 <= x <= 1
        put(found, number, x, y, x)


def filled(**options: Any) -> DehbModel:
    """The first rung of nine, the less x the better; all near the middle, so that no mutant leaves."""
    found = model(**options)
    for number in range(9):
        put(found, number, 0.4 + 0.02 * number, 0.6 - 0.02 * number, float(number))
    return found


def test_in_the_first_band_the_best_of_the_rung_below_go_up_in_their_order() -> None:
    found = filled()
    for number, best in ((9, 0), (10, 1), (11, 2)):
        assert drawn(found, number) == pytest.approx((0.4 + 0.02 * best, 0.6 - 0.02 * best))
        put(found, number, *drawn(found, number), loss=10.0 - number)
    assert drawn(found, 12) == pytest.approx((0.44, 0.56)), "the best with more time"
    put(found, 12, *drawn(found, 12), loss=0.0)
    assert drawn(found, 16) == pytest.approx((0.42, 0.58)), "which the highest rung has not had yet"


def test_after_the_first_band_nothing_is_promoted() -> None:
    found = filled()
    known = {(round(0.4 + 0.02 * number, 6), round(0.6 - 0.02 * number, 6)) for number in range(9)}
    assert {tuple(round(at, 6) for at in drawn(found, 9))} <= known
    for number in (29, 30, 31):
        assert tuple(round(at, 6) for at in drawn(found, number)) not in known


@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_a_mutant_is_made_of_three_of_the_best_of_the_rung_below(factor: float) -> None:
    found = filled(mutation_factor=factor, crossover_prob=1.0)
    best = [(0.4 + 0.02 * number, 0.6 - 0.02 * number) for number in range(3)]
    possible = [
        tuple(a + factor * (b - c) for a, b, c in zip(*three, strict=True)) for three in permutations(best)
    ]
    seen = set()
    for attempt in range(1, 60):
        child = drawn(found, 29, attempt)
        (index,) = (index for index, each in enumerate(possible) if child == pytest.approx(each, abs=1e-12))
        seen.add(round(possible[index][0], 6))
    assert len(seen) == len({round(each[0], 6) for each in possible})


def test_in_a_first_rung_it_is_made_of_that_rung() -> None:
    found = filled(crossover_prob=1.0)
    members = [0.4 + 0.02 * number for number in range(9)]
    possible = {round(a + 0.5 * (b - c), 6) for a, b, c in permutations(members, 3)}
    children = {round(drawn(found, 20, attempt)[0], 6) for attempt in range(40)}
    assert children <= possible
    assert max(children) > 0.5, "also of those that are not the best"


def test_one_parameter_at_least_is_the_mutants_and_half_of_them_by_default() -> None:
    parent = (0.46, 0.54)  # trial 23 competes with trial 3
    least = filled(crossover_prob=0.0)
    for attempt in range(20):
        child = drawn(least, 23, attempt)
        assert sum(a != pytest.approx(b) for a, b in zip(child, parent, strict=True)) <= 1
    half = filled()
    counts = [
        sum(a != pytest.approx(b) for a, b in zip(drawn(half, 23, attempt), parent, strict=True))
        for attempt in range(400)
    ]
    # One in four has none and is given one: 3/4 have one (of two), 1/4 both; fewer where a mutant's is alike.
    assert 0.18 < counts.count(2) / 400 < 0.3
    assert counts.count(0) < 400 * 0.1


def test_what_leaves_the_range_is_drawn_anew() -> None:
    found = model(mutation_factor=1.0, crossover_prob=1.0)
    for number in range(9):
        put(found, number, float(number % 2), float(number % 2), 0.0)
    children = [drawn(found, 20, attempt) for attempt in range(80)]
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in children)
    inside = [x for x, _ in children if x not in (0.0, 1.0)]
    assert len(inside) > 10
    assert len(set(inside)) == len(inside)


def test_where_parents_are_few_mutants_of_all_fill_up() -> None:
    """At trial 32 the pool is the best of the rung below alone."""
    found = filled(crossover_prob=1.0)
    for number in (9, 10, 11, 12):
        put(found, number, 0.5, 0.5, 1.0)
    assert Brackets(9, 3).place(32).pool == 1
    children = {drawn(found, 32, attempt) for attempt in range(10)}
    assert len(children) == 10


def holder(found: DehbModel, rung: int, slot: int) -> int:
    return found._holders[rung][slot].trial


def test_the_better_one_has_the_place_of_equal_ones_the_later() -> None:
    found = filled()
    for number, loss, has_it in ((20, 0.5, 0), (40, 0.0, 40)):
        put(found, number, 0.5, 0.5, loss)
        assert holder(found, 0, 0) == has_it
    found.end(21, None)
    assert holder(found, 0, 1) == 1
    most = model(mode="max")
    put(most, 0, 0.1, 0.1, 1.0)
    put(most, 20, 0.2, 0.2, 2.0)
    put(most, 40, 0.3, 0.3, 1.5)
    assert holder(most, 0, 0) == 20


def test_who_breaks_a_constraint_comes_after_all_that_do_not() -> None:
    found = model()
    for number, violation in ((0, 0.0), (20, 0.5), (40, 0.25)):
        found.add(number, {X: 0.5, Y: 0.5})
        found.end(number, Result(-float(number), (violation,)))
    assert holder(found, 0, 0) == 0


def test_the_order_of_results_does_not_matter() -> None:
    one, other = model(), model()
    results = [(number, number * 7 % 11 / 11, number * 5 % 4 / 4) for number in range(40)]
    for number, x, _ in results:
        for each in (one, other):
            each.add(number, {X: x, Y: 1 - x})
    for number, _, loss in results:
        one.end(number, Result(loss))
    for number, _, loss in reversed(results):
        other.end(number, Result(loss))
    assert [drawn(one, number) for number in range(40, 60)] == [drawn(other, n) for n in range(40, 60)]


def test_results_move_the_search() -> None:
    """Of two that see other sides of the same space, each ends on its own."""
    ends = []
    for sign in (1, -1):
        found = searcher()
        for number in range(100):
            config = found.ask(number)
            assert config is not None
            found.tell(number, sign * (config["x"] + config["y"]), "stopped")
        last = [found._model._values[number] for number in range(80, 100)]  # type: ignore[attr-defined]
        ends.append(sum(each[X] + each[Y] for each in last) / 20)
    assert ends[0] < 0.7 < 1.3 < ends[1]


def test_a_config_goes_up_whole_also_where_all_can_be_counted_or_some_is_not_modelled() -> None:
    space = {
        "k": {"choice": ["a", "b", "c"]},
        "n": {"randint": [0, 4]},
        "z": {"randn": [0, 1]},
        "net": {"choice": {"deep": {"layers": {"randint": [2, 9]}}, "flat": {}}},
    }
    for part in (("k", "n"), tuple(space)):
        found = searcher({name: space[name] for name in part})
        configs = [found.ask(number) for number in range(9)]
        for number in range(9):
            found.tell(number, number * 4 % 9, "stopped")
        assert found.ask(9) == configs[0]
        assert found.ask(10) in configs[1:]


def test_few_configs_are_not_exhausted() -> None:
    found = searcher({"k": {"choice": ["a", "b"]}})
    assert found.total == 100
    assert found.note is None
    for number in range(100):
        assert found.ask(number) in ({"k": "a"}, {"k": "b"})
        found.tell(number, 0.0, "stopped")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"scheduler": "hyperband"},
            r"^search: dehb requires scheduler: dehb .got hyperband.; set scheduler: dehb",
        ),
        ({"search": "random"}, r"^scheduler: dehb requires search: dehb .got random.; set search: dehb"),
        ({"search": {}}, r"^scheduler: dehb requires search: dehb .got none.; set search: dehb"),
        ({"points": [{"x": 0.5}]}, r"^points: dehb runs no configs but its own; leave it out"),
        ({"warm_start": "champion"}, r"^warm_start: dehb runs no configs but its own; leave it out"),
        ({"metric": ["a", "b"], "mode": ["min", "min"]}, r"^(search|scheduler): "),
        ({"repeat": 3}, r"^scheduler: with repeat"),
        ({"search": {"dehb": {"mutation_factor": 0}}}, r"mutation_factor"),
        ({"scheduler": {"dehb": {"reduction_factor": 1}}}, r"reduction_factor"),
    ],
)
def test_what_it_cannot_do_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(**fields)


def test_a_space_of_branches_alone_and_a_grid_are_refused() -> None:
    with pytest.raises(SpecError, match="dehb models parameters that every config has"):
        searcher({"m": {"choice": {"a": {"u": {"uniform": [0, 1]}}, "b": {}}}})
    with pytest.raises(SpecError, match=r"^param_space\.x: grid_search cannot be combined with the dehb"):
        searcher({"x": {"grid_search": [1, 2]}})


def test_every_config_satisfies_where_and_what_goes_up_goes_up_as_it_was() -> None:
    found = searcher(where=["x + 0.2 < y"])
    configs: list[dict[str, Any]] = []
    for number in range(60):
        config = found.ask(number)
        assert config is not None
        configs.append(config)
        found.tell(number, config["x"] - config["y"], "stopped")
    assert all(config["x"] + 0.2 < config["y"] for config in configs)
    assert configs[9] == min(configs[:9], key=lambda config: config["x"] - config["y"])


def test_without_an_end_it_is_the_start_of_a_long_one() -> None:
    ends = []
    for fields in ({"num_samples": None, "stop": {"time_budget_s": 60}}, {"num_samples": 2000}):
        found = searcher(**fields)
        for number in range(45):
            config = found.ask(number)
            assert config is not None
            found.tell(number, config["x"], "stopped")
        ends.append(config)
    assert searcher(num_samples=None, stop={"time_budget_s": 60}).total is None
    assert ends[0] == ends[1]
