"""`where`: relations between parameters, which every search honours; and text that is never run as code."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.documents.validation import Problem
from raysweep.errors import SpecError
from raysweep.search import Searcher, load_searcher, make_searcher
from raysweep.search.machinery.warm_start import refit
from raysweep.search.spec import SearchSpec
from raysweep.simulate import simulate
from raysweep.space.expressions import parse_relation
from raysweep.specs import SweepSpec
from tests.unit.simulate.exactness import Exact, kills_of
from tests.unit.simulate.sweeps import shown

NUMBERS = {"low": {"uniform": [0, 1]}, "high": {"uniform": [0, 1]}}
DISCRETE = {"low": {"randint": [0, 7]}, "high": {"choice": [0, 1, 2, 3, 4, 5, 6]}}
LARGE = {"low": {"randint": [0, 10**6]}, "high": {"randint": [0, 10**6]}}
WHERE = "low + 0.01 < high"
SEARCHES: dict[str, Any] = {
    "random": "random",
    "tpe": {"tpe": {"n_startup_trials": 3}},
    "gp": {"gp": {"n_startup_trials": 4}},
    "cma_es": {"cma_es": {"population_size": 4}},
    "nsga2": {"nsga2": {"population_size": 4}},
    "auto": {"auto": {"switch_after": 10}},
}


# The model of a Gaussian process is costly, and is asked again for what `where` refuses.
SAMPLED = [pytest.param(name, marks=[pytest.mark.slow] * (name == "gp")) for name in SEARCHES]


def make_spec(**fields: Any) -> SweepSpec:
    plain = {"name": "w", "trainable": "m:f", "param_space": NUMBERS, "metric": "loss", "mode": "min"}
    return SweepSpec.model_validate({**plain, "seed": 1, "num_samples": 15, "where": WHERE, **fields})


def ask_all(spec: SweepSpec) -> list[dict[str, Any]]:
    """Every config of a search that is told how each did."""
    searcher = make_searcher(spec, spec.seed or 0)
    found: list[dict[str, Any]] = []
    while (config := searcher.ask(len(found))) is not None:
        searcher.tell(len(found), config["low"] - config["high"], "completed")
        found.append(config)
    return found


def test_each_search_is_here_or_has_a_test_of_its_own() -> None:
    assert {*SEARCHES, "grid", "configs", "nsga3", "bohb"} == set(SearchSpec.kinds)


@pytest.mark.parametrize("space", [NUMBERS, DISCRETE, LARGE], ids=["numbers", "discrete", "large"])
@pytest.mark.parametrize("search", SAMPLED)
def test_every_search_honours_it(search: str, space: dict[str, Any]) -> None:
    configs = ask_all(make_spec(search=SEARCHES[search], param_space=space))
    assert len(configs) == 15
    assert all(config["low"] + 0.01 < config["high"] for config in configs)
    repeats = space is NUMBERS or search == "random"
    assert repeats or len({tuple(config.items()) for config in configs}) == 15


@pytest.mark.parametrize("search", [name for name in SEARCHES if name not in ("gp", "auto")])
def test_a_discrete_space_ends_with_the_last_config_that_satisfies_it(search: str) -> None:
    """21 of 49 do; the note says that there were no more."""
    asked = {"random": {"distinct": True}} if search == "random" else SEARCHES[search]
    spec = make_spec(search=asked, param_space=DISCRETE, num_samples=30)
    configs = ask_all(spec)
    assert len({tuple(config.items()) for config in configs}) == len(configs) == 21
    notes = simulate(spec, lambda config, step: {"loss": 1.0} if step == 1 else None).outcome.notes
    assert [note for note in notes if "no more than 21 configs satisfy where" in note]


def test_without_it_every_search_gives_what_it_always_gave() -> None:
    """And one that always holds changes nothing."""
    for search in SEARCHES.values():
        plain = make_spec(search=search, where=[], num_samples=8)
        assert ask_all(plain) == ask_all(plain.replace(where="low + high < 99"))


def test_of_a_grid_the_points_that_satisfy_it_run() -> None:
    grid = {"low": {"grid_search": [0, 1, 2]}, "high": {"grid_search": [0, 1, 2]}, "x": {"uniform": [0, 1]}}
    configs = ask_all(
        make_spec(search="grid", param_space=grid, num_samples=2, where=["low < high", "x > 0.5"])
    )
    assert [(config["low"], config["high"]) for config in configs] == [(0, 1), (0, 2), (1, 2)] * 2
    assert all(config["x"] > 0.5 for config in configs)


def test_a_grid_and_what_is_drawn_may_depend_on_each_other() -> None:
    space = {"low": {"grid_search": [0, 3, 5]}, "high": {"randint": [0, 7]}}
    configs = ask_all(make_spec(param_space=space, num_samples=1, where="low < high"))
    assert [config["low"] for config in configs] == [0, 3, 5]
    assert all(config["low"] < config["high"] for config in configs)


HALF_BOUND: dict[str, Any] = {
    "search": {"grid": {"distinct": True}},
    "param_space": {"g": {"grid_search": ["a", "b"]}, "c": {"choice": list(range(10))}},
    "where": ['g == "b" or c == 0'],
    "num_samples": 10,
}


@pytest.mark.parametrize("num_samples", [10, 4, None])
def test_a_grid_goes_on_without_a_point_that_has_nothing_left(num_samples: int | None) -> None:
    """Where the one has a single config, the other gets all of its samples; and the note counts both."""
    spec = make_spec(**HALF_BOUND | {"num_samples": num_samples, "stop": {"time_budget_s": 900}})
    outcome = simulate(spec, lambda config, step: {"loss": 1.0} if step == 1 else None).outcome
    found = [(trial.config["g"], trial.config["c"]) for trial in outcome.trials]
    assert outcome.status == "completed"
    assert len(set(found)) == len(found) == 1 + (num_samples or 10)
    assert [g for g, _ in found].count("a") == 1
    counts = f"no more than {len(found)} configs" if num_samples is None else f"{len(found)} trials in all"
    assert [note for note in outcome.notes if counts in note]


@pytest.mark.parametrize("drawn", [{"choice": [1, 2, 3, 4]}, {"uniform": [0, 9]}], ids=["discrete", "real"])
def test_a_point_of_a_grid_that_is_ruled_out_by_what_is_drawn_is_left_out(drawn: dict[str, Any]) -> None:
    space = {"g": {"grid_search": [1, 2, 3]}, "c": drawn}
    spec = make_spec(search="grid", param_space=space, where="g != 1 or c > 100", num_samples=2)
    outcome = simulate(spec, lambda config, step: {"loss": 1.0} if step == 1 else None).outcome
    assert [(trial.config["g"], trial.state) for trial in outcome.trials] == [
        (2, "completed"),
        (3, "completed"),
    ] * 2
    assert [note for note in outcome.notes if "at 1 of 3 points of the grid" in note]
    with pytest.raises(SpecError, match=r"^where: .*'c > 100'; relax where"):
        make_searcher(spec.replace(where="c > 100"), 1).ask(0)


def test_a_grid_with_samples_left_at_some_points_is_rebuilt_from_its_configs() -> None:
    """Of points that are alike too, which have used what the one before them has not."""
    space = {"g": {"grid_search": [1, 1, 2, 3]}, "c": {"choice": list(range(7))}}
    where = ["g != 1 or c < 2", "g != 2 or c < 4"]
    spec = make_spec(search={"grid": {"distinct": True}}, param_space=space, where=where, num_samples=6)
    searcher = make_searcher(spec, 1)
    configs: list[dict[str, Any]] = []
    while (config := searcher.ask(len(configs))) is not None:
        configs.append(config)
    assert [config["g"] for config in configs] == [1, 1, 2, 3] * 2 + [2, 3] * 2 + [3] * 2
    for at in range(len(configs)):
        rebuilt = make_searcher(spec, 1)
        for number, config in enumerate(configs[:at]):
            rebuilt.restore(number, config)
        rest = range(at, len(configs))
        assert [rebuilt.ask(number) for number in rest] == configs[at:]
        assert rebuilt.ask(len(configs)) is None
        assert [rebuilt.ask(number) for number in rest] == configs[at:]
    more = make_searcher(spec.replace(num_samples=7), 1)
    for number, config in enumerate(configs):
        more.restore(number, config)
    assert more.ask(len(configs)) not in (None, *configs)


def test_distinct_draws_try_all_that_satisfy_it() -> None:
    spec = make_spec(search={"random": {"distinct": True}}, param_space=DISCRETE, num_samples=42)
    configs = ask_all(spec)
    assert len(configs) == 21
    assert len({tuple(config.items()) for config in configs}) == 21


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_a_null_among_choices_fails_no_trial(search: str) -> None:
    """Whether it is left out or allowed, as the relation says."""
    space = {"low": {"choice": [1, 2, 5, None]}, "high": {"uniform": [0, 1]}}
    for where, allowed in ("low < 3", {1, 2}), ("low == null or low < 3", {1, 2, None}):
        spec = make_spec(search=SEARCHES[search], param_space=space, where=where, num_samples=12)
        outcome = simulate(spec, lambda config, step: {"loss": 1.0} if step == 1 else None).outcome
        assert outcome.counts["completed"] == 12
        assert {trial.config["low"] for trial in outcome.trials} == allowed


@pytest.mark.parametrize("search", [*SEARCHES, "grid"])
def test_what_nothing_satisfies_is_refused_by_name(search: str) -> None:
    space = DISCRETE if search != "grid" else {"low": {"grid_search": [1, 2]}, "high": {"choice": [0, 1]}}
    spec = make_spec(search=SEARCHES.get(search, search), param_space=space, where="low > high + 9")
    with pytest.raises(SpecError, match=r"^where: .*'low > high \+ 9'; relax where"):
        make_searcher(spec, 1).ask(0)


def test_points_are_completed_so_that_it_holds() -> None:
    spec = make_spec(points=[{"low": 0.9}, {"low": 0.8}], num_samples=3)
    assert all(config["low"] < config["high"] for config in ask_all(spec))
    # Nothing was drawn there, so it is not where that is too narrow.
    with pytest.raises(SpecError, match=r"^points\[0\]: does not satisfy 'low \+ 0.01 < high'; change the"):
        ask_all(spec.replace(points=[{"low": 0.9, "high": 0.1}]))
    with pytest.raises(SpecError, match=r"^points\[0\]: of 10000 configs that were drawn, none .*; relax"):
        ask_all(spec.replace(points=[{"low": 1.0}]))


def test_an_earlier_nights_config_that_breaks_it_is_left_out() -> None:
    with pytest.raises(ValueError, match=r"does not satisfy 'low \+ 0.01 < high'"):
        refit(make_spec().space, {"low": 0.9, "high": 0.1})
    assert refit(make_spec().space, {"low": 0.1, "high": 0.9}) == {"low": 0.1, "high": 0.9}


class Sampler(Searcher):
    """A searcher of a user's own; `sample` of its space honours `where`."""

    is_adaptive = True
    note = None

    def __init__(self, options: Any, setup: Any) -> None:
        self.total = setup.num_samples
        self._space = setup.space

    def ask(self, number: int) -> dict[str, Any]:
        if number == 3:
            return {"low": 1.0, "high": 0.0}
        return dict(self._space.sample(Random(number)))

    def restore(self, number: int, config: Mapping[str, Any]) -> None: ...

    def tell(self, number: int, value: float | None, state: str) -> None: ...

    def tell_earlier(self, config: Mapping[str, Any], value: float) -> None: ...


def test_a_searcher_of_ones_own_is_watched() -> None:
    spec = make_spec(search=Sampler)
    load_searcher(spec)
    searcher = make_searcher(spec, 1)
    for number in range(3):
        config = searcher.ask(number)
        assert config is not None
        assert config["low"] < config["high"]
    with pytest.raises(SpecError, match=r"ask\(3\).*satisfies 'low \+ 0.01 < high'"):
        searcher.ask(3)


def test_a_population_explores_within_it() -> None:
    pbt = {"perturbation_interval": 2, "synch": True, "max_t": 20, "resample_probability": 0.5}
    spec = make_spec(num_samples=6, scheduler={"pbt": pbt})
    outcome = simulate(
        spec, lambda config, step: {"loss": config["low"] / step}, slots=3, save_every=1
    ).outcome
    attempts = [attempt for trial in outcome.trials for attempt in trial.attempts]
    assert sum(attempt.donor is not None for attempt in attempts) > 5
    seen = [trial.config for trial in outcome.trials] + [a.config for a in attempts if a.config is not None]
    assert all(config["low"] + 0.01 < config["high"] for config in seen)


def test_a_kill_changes_nothing_of_a_grid() -> None:
    exact = Exact("where-grid", "none", make_spec(**HALF_BOUND, max_concurrent_trials=1))
    expected = exact.run()
    assert len(shown(expected)) > 0
    for kill in kills_of(expected):
        assert shown(exact.run(kill)) == shown(expected)


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_a_kill_changes_nothing(search: str) -> None:
    spec = make_spec(
        search=SEARCHES[search],
        param_space={"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}},
        where="x < y",
        num_samples=8,
        max_concurrent_trials=1,
    )
    exact = Exact(f"where-{search}", "none", spec)
    expected = exact.run()
    for kill in Random(search).sample(kills_of(expected), 8):
        assert shown(exact.run(kill)) == shown(expected)


@pytest.mark.parametrize(
    ("text", "config", "holds"),
    [
        ("a < b", {"a": 1, "b": 2}, True),
        ("a < b < 3", {"a": 1, "b": 3}, False),
        ("a * 2 + b / 4 - 1 >= 0.5", {"a": 0.5, "b": 2}, True),
        ("a == 1 and b != 2 or b == 2", {"a": 0, "b": 2}, True),
        ("not a == 1", {"a": 1}, False),
        ("-a < 0", {"a": 1}, True),
        ("(a + b) * 2 == 6", {"a": 1, "b": 2}, True),
        ("m.a[1] < m.b", {"m": {"a": [9, 1], "b": 2}}, True),
        ('m["my-name"] <= 1', {"m": {"my-name": 1}}, True),
        ('kind == "adam" or lr < 0.1', {"kind": "sgd", "lr": 0.5}, False),
        ("flag == true", {"flag": True}, True),
        ("1 / a > 0", {"a": 0}, False),
        ("a < 3", {"a": None}, False),
        ("not a < 3", {"a": None}, False),
        ("a * 2 < 3", {"a": None}, False),
        ("a.b < 3", {"a": None}, False),
        ("a == null or a < 3", {"a": None}, True),
        ("a == null or a < 3", {"a": 5}, False),
        ("a != null and a < 3", {"a": None}, False),
        ("a == None", {"a": None}, True),
    ],
)
def test_what_relations_say(text: str, config: dict[str, Any], holds: bool) -> None:
    assert parse_relation(text).holds(config) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.__class__",
        "(lambda: 1)() < a",
        "[x for x in a] == b",
        "a ** b < 1",
        "a @ b < 1",
        "a << 9 < b",
        "a if b else a < 1",
        "f'{a}' == b",
        "a[b] < 1",
        "a[1:2] == b",
        "a in b",
        "a is b",
        "(a := 1) < 2",
        "a",
        "a + b",
        "1 < 2",
        "a <",
        "a = b",
        "",
        "(" * 300 + "a" + ")" * 300 + " < 1",
        "a < 1 and " * 100 + "a < 1",
        "a\0 < 1",
    ],
)
def test_nothing_else_is_known(text: str) -> None:
    with pytest.raises(Problem):
        parse_relation(text)


@given(st.text(alphabet="ab.()[]<>=!+-*/ 01andort\"'_", max_size=30))
def test_any_text_is_a_relation_or_refused(text: str) -> None:
    try:
        relation = parse_relation(text)
    except Problem:
        return
    with suppress(SpecError):
        assert relation.holds({"a": 1.5, "b": {"a": 2}, "t": "x"}) in (True, False)


def test_strings_are_not_multiplied() -> None:
    with pytest.raises(SpecError, match=r"^where: .*'xx' is not a number"):
        parse_relation("a * 1000000000 == b").holds({"a": "xx", "b": 1})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("low < hihg", "where[0]: 'hihg' is not in param_space; did you mean 'high'?"),
        (["low < high", "low <"], "where[1]: 'low <' is not an expression; write such as"),
        ("open('f') < low", "where[0]: \"open('f')\" is not known here; use names, numbers"),
        ("low.x < 1", "where[0]: 'low.x' is not a parameter"),
        ([1], "where[0]: expected a relation, got 1"),
        ("made < 1", "where[0]: 'made' is made by a function of the others, after they are chosen"),
    ],
)
def test_a_spec_names_the_field_and_the_fix(where: Any, message: str) -> None:
    space = NUMBERS | {"made": {"sample_from": "not.there:f"}}
    with pytest.raises(SpecError) as error:
        make_spec(where=where, param_space=space)
    assert str(error.value).startswith(message)


def test_a_list_of_configs_has_no_relations() -> None:
    with pytest.raises(SpecError, match=r"^where: is not used with a list of configs"):
        make_spec(search={"configs": {"configs": [{"low": 1, "high": 0}]}})


def test_it_is_written_only_where_it_is_set() -> None:
    spec = make_spec(where=["low < high", " high > 0.5 "])
    assert spec.to_dict()["where"] == ["low < high", "high > 0.5"]
    assert SweepSpec.model_validate(spec.to_dict()) == spec
    assert SweepSpec.from_yaml(spec.to_yaml()) == spec
    plain = make_spec(where=[])
    assert plain.digest() != spec.digest()
