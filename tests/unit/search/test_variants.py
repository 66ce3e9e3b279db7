"""Random and grid search: purity, repeats, exhaustion, cost."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.search import Searcher, make_searcher
from raysweep.search.variants import VariantSearcher
from raysweep.specs import SweepSpec

CONTINUOUS: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "depth": {"choice": [4, 6, 8]},
    "nested": {"width": {"randint": [1, 100]}, "list": [{"uniform": [0, 1]}, 5]},
    "c": 3,
}
DISCRETE: dict[str, Any] = {
    "i": {"randint": [0, 4]},
    "qi": {"qrandint": [8, 16, 4]},
    "qf": {"quniform": [0.1, 0.5, 0.1]},
    "c": {"choice": ["a", None, {"x": [1, 2]}, 1, 1.0, True]},
}  # 4 * 3 * 5 * 6 = 360
DISTINCT: dict[str, Any] = {"random": {"distinct": True}}
LOGARITHMIC: dict[str, Any] = {"i": {"lograndint": [1, 40]}, "q": {"qloguniform": [0.5, 4, 0.5]}}  # 39 * 8


def searcher(space: dict[str, Any], num_samples: int = 10, seed: int = 1, search: Any = "random") -> Searcher:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "mode": "max", "search": search}
    return make_searcher(SweepSpec(param_space=space, num_samples=num_samples, **fields), seed)


def ask_all(asked: Searcher) -> list[dict[str, Any]]:
    assert asked.total is not None
    configs = [asked.ask(number) for number in range(asked.total)]
    assert asked.ask(asked.total) is None
    assert None not in configs
    return [config for config in configs if config is not None]


def text(config: dict[str, Any]) -> bytes:
    return orjson.dumps(config, option=orjson.OPT_SORT_KEYS)


def test_ask_depends_on_seed_and_number_only() -> None:
    """In a continuous space any ask can be made alone and again."""
    configs = ask_all(searcher(CONTINUOUS, 50))
    alone = searcher(CONTINUOUS, 50)
    for number in [49, 3, 3, 0, 20]:
        assert alone.ask(number) == configs[number]
    assert ask_all(searcher(CONTINUOUS, 50, seed=2)) != configs
    assert len({text(config) for config in configs}) == 50


def test_more_samples_keep_the_first_ones() -> None:
    """Raising num_samples on resume does not change what was asked before."""
    for space in (CONTINUOUS, DISCRETE):
        assert ask_all(searcher(space, 60))[:20] == ask_all(searcher(space, 20))


def test_values_lie_in_their_domains() -> None:
    """Nesting, lists and constants are kept; values are of the domain's type and range."""
    for config in ask_all(searcher(CONTINUOUS, 200)):
        assert 1e-4 <= config["lr"] <= 1e-1
        assert config["depth"] in (4, 6, 8)
        assert config["nested"]["width"] in range(1, 100)
        assert 0 <= config["nested"]["list"][0] <= 1
        assert config["nested"]["list"][1] == 5
        assert config["c"] == 3


@pytest.mark.parametrize(
    ("space", "cells"), [(DISCRETE, 360), (LOGARITHMIC, 312), ({"x": {"choice": [1]}}, 1)]
)
def test_distinct_configs_walk_a_discrete_space_once(space: dict[str, Any], cells: int) -> None:
    """No config comes twice; the search ends with the last one and says so."""
    asked = searcher(space, 1000, search=DISTINCT)
    assert asked.total == cells
    assert asked.note is not None
    assert "1000" in asked.note
    assert str(cells) in asked.note
    assert len({text(config) for config in ask_all(asked)}) == cells


def test_a_space_that_is_large_enough_needs_no_note() -> None:
    """The note is for missing configs only."""
    for asked in (
        searcher(DISCRETE, 360),
        searcher(CONTINUOUS, 1000),
        searcher({"x": {"grid_search": [1]}}, 5),
    ):
        assert asked.note is None


def test_repeated_choices_count_once() -> None:
    """A value that is listed twice is more likely, not a second config."""
    asked = searcher({"x": {"choice": ["a", "a", "b"]}}, 10, search=DISTINCT)
    assert asked.total == 2
    assert {config["x"] for config in ask_all(asked)} == {"a", "b"}


def test_distinct_configs_walk_the_discrete_leaves_at_each_grid_point() -> None:
    """Two samples of a grid point differ; the search ends when the points have had all values."""
    space = {"g": {"grid_search": [1, 2]}, "c": {"choice": ["a", "b", "c"]}}
    asked = searcher(space, 50, search={"grid": {"distinct": True}})
    configs = ask_all(asked)
    assert asked.total == 6
    assert len({text(config) for config in configs}) == 6
    assert [config["g"] for config in configs] == [1, 2] * 3


@pytest.mark.parametrize(
    ("space", "num_samples", "total"),
    [
        ({"x": {"choice": [1, 2, 3]}}, 10, 10),
        ({"x": {"choice": [1]}}, 4, 4),
        ({"x": {"randint": [0, 2]}, "y": {"choice": ["a", "b"]}}, 50, 50),
        ({"g": {"grid_search": [1, 2]}, "x": {"choice": ["only"]}}, 5, 10),
        ({"g": {"grid_search": [1, 2]}, "h": {"grid_search": [3, 4]}, "x": {"choice": [1, 2]}}, 3, 12),
    ],
)
def test_samples_are_drawn_with_replacement(space: dict[str, Any], num_samples: int, total: int) -> None:
    """As many trials as asked for, at each point of a grid, however few configs there are."""
    asked = searcher(space, num_samples, search="random")
    configs = ask_all(asked)
    assert (asked.total, len(configs), asked.note) == (total, total, None)
    points = Counter(tuple(value for name, value in config.items() if name in "gh") for config in configs)
    assert set(points.values()) == {num_samples}
    again = searcher(space, num_samples, search="random")
    assert [again.ask(number) for number in reversed(range(total))] == configs[::-1], "of n alone"


def test_a_grid_alone_repeats_as_asked() -> None:
    """Without random leaves, num_samples means repetitions."""
    configs = ask_all(searcher({"g": {"grid_search": [1, 2]}}, 3, search="grid"))
    assert configs == [{"g": 1}, {"g": 2}] * 3


def test_quantised_normal_values_do_not_repeat() -> None:
    """An unbounded discrete domain has no end: the search goes further out instead of repeating."""
    asked = searcher({"x": {"qrandn": [0, 1, 1]}}, 60, search=DISTINCT)
    assert asked.total == 60
    assert len({config["x"] for config in ask_all(asked)}) == 60


def test_random_values_follow_their_distribution() -> None:
    """The rejection of repeats leaves the draws of a large space as they are."""
    space = {"c": {"choice": ["a", "b"]}, "i": {"lograndint": [1, 10**6]}, "j": {"randint": [0, 10**6]}}
    configs = ask_all(searcher(space, 4000))
    assert 1850 < Counter(config["c"] for config in configs)["a"] < 2150
    assert 1850 < sum(config["i"] < 1000 for config in configs) < 2150


@given(st.integers(0, 70), st.booleans())
def test_restored_searcher_goes_on_as_the_first(at: int, has_grid: bool) -> None:
    """Restored from JSON text at any point, in any space, the rest is the same."""
    space = {**LOGARITHMIC, **({"g": {"grid_search": [1, 2, 3]}} if has_grid else {})}
    configs = ask_all(searcher(space, 100))[:80]
    rebuilt = searcher(space, 100)
    for number, config in enumerate(configs[:at]):
        rebuilt.restore(number, orjson.loads(orjson.dumps(config)))
        rebuilt.tell(number, None, "failed")
    assert [rebuilt.ask(number) for number in range(at, 80)] == configs[at:]


def test_asking_again_gives_the_same_config() -> None:
    """A number keeps its config in a discrete space too."""
    asked = searcher(DISCRETE, 50)
    first = asked.ask(0)
    second = asked.ask(1)
    assert asked.ask(0) == first
    assert asked.ask(1) == second


def test_a_restored_config_outside_the_space_is_left_alone() -> None:
    """It cannot be drawn again, so there is nothing to remember."""
    asked = searcher({"c": {"choice": ["a", "b"]}}, 5)
    asked.restore(0, {"c": "gone"})
    asked.restore(1, {})
    assert {config["c"] for config in ask_all(asked)} == {"a", "b"}


def test_continuous_spaces_keep_nothing() -> None:
    """Memory does not grow with the asks."""
    asked = searcher(CONTINUOUS, 100)
    assert isinstance(asked, VariantSearcher)
    ask_all(asked)
    assert not asked._cell_of
    assert not asked._used


def test_configs_share_nothing() -> None:
    """A trial that changes its config changes no other."""
    asked = searcher({"c": {"choice": [{"k": [1]}]}, "x": {"uniform": [0, 1]}, "fixed": {"k": [2]}}, 2)
    first, second = ask_all(asked)
    first["c"]["k"].append("changed")
    first["fixed"]["k"].append("changed")
    assert second["c"] == {"k": [1]}
    assert second["fixed"] == {"k": [2]}


def test_sample_from_reads_the_config_in_every_way() -> None:
    """As Ray's spec, as a config dict, by attribute, or not at all."""
    space = {
        "x": {"choice": [3]},
        "n": {"y": {"uniform": [0, 1]}, "l": [{"k": 4}]},
        "spec_attribute": {"sample_from": lambda spec: spec.config.x},
        "spec_key": {"sample_from": lambda spec: spec["config"]["n"]["y"]},
        "config_key": {"sample_from": lambda config: config["n"]["l"][0]["k"]},
        "config_attribute": {"sample_from": lambda config: config.n.l[0].k},
        "earlier_function": {"sample_from": lambda config: config["spec_attribute"] + 1},
        "nothing": {"sample_from": lambda: "n"},
        "nested": {"sample_from": lambda config: config["n"]},
    }
    for config in ask_all(searcher(space, 3)):
        assert type(config["nested"]) is dict
        assert config == {
            "x": 3,
            "n": {"y": config["n"]["y"], "l": [{"k": 4}]},
            "spec_attribute": 3,
            "spec_key": config["n"]["y"],
            "config_key": 4,
            "config_attribute": 4,
            "earlier_function": 4,
            "nothing": "n",
            "nested": config["n"],
        }


def test_sample_from_that_names_no_parameter_is_named() -> None:
    """The error names the field and what the function looked for."""
    asked = searcher({"x": {"uniform": [0, 1]}, "y": {"sample_from": lambda spec: spec.config.z}})
    with pytest.raises(SpecError, match=r"param_space\.y.*'z'.*known here: x"):
        asked.ask(0)


@pytest.mark.parametrize("space", [CONTINUOUS, DISCRETE, {"x": {"uniform": [0, 1]}}])
def test_a_thousand_asks_are_cheap(space: dict[str, Any]) -> None:
    """Measured: 0.01 to 0.03 ms an ask. Of the CPU, as others may be at work here too."""
    fastest = 1.0
    for _ in range(3):
        asked = searcher(space, 1000, search=DISTINCT)
        started = time.process_time()
        count = len(ask_all(asked))
        fastest = min(fastest, (time.process_time() - started) / count)
    assert fastest < 500e-6
