"""Brute force: by the trial's number, scrambled by the seed, each config once."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import orjson
import pytest

from raysweep.errors import SpecError
from raysweep.search import Searcher, make_searcher
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {"x": {"uniform": [0, 1]}, "y": {"uniform": [-2, 2]}}
DISCRETE: dict[str, Any] = {"i": {"randint": [0, 6]}, "c": {"choice": ["a", "b", {"z": 1}]}}  # 18 cells


def make(search: Any, space: dict[str, Any] = SPACE, samples: int = 64, seed: int = 3) -> Searcher:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "mode": "min"}
    return make_searcher(SweepSpec(**fields, param_space=space, num_samples=samples, search=search), seed)


def all_of(searcher: Searcher) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while (config := searcher.ask(len(found))) is not None:
        found.append(config)
    return found


def test_a_config_depends_on_its_number_alone() -> None:
    configs = all_of(make("brute_force", DISCRETE, samples=2))
    searcher, numbers = make("brute_force", DISCRETE, samples=2), list(range(len(configs)))
    random.Random(1).shuffle(numbers)
    assert [searcher.ask(number) for number in numbers] == [configs[number] for number in numbers]


def test_the_seed_orders_brute_force() -> None:
    one, other = (all_of(make("brute_force", DISCRETE, 1, seed=seed)) for seed in (1, 2))
    assert one != other


@pytest.mark.parametrize("samples", [1, 3])
def test_brute_force_runs_each_config_as_often_as_was_asked_for(samples: int) -> None:
    searcher = make("brute_force", DISCRETE, samples)
    assert searcher.total == 18 * samples
    found = [orjson.dumps(config) for config in all_of(searcher)]
    assert set(Counter(found).values()) == {samples}
    assert len(set(found)) == 18
    for repeat in range(samples):
        assert len(set(found[18 * repeat :][:18])) == 18, "a second time only after all of them"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 97, 1000])
def test_brute_force_leaves_none_out(size: int) -> None:
    configs = all_of(make("brute_force", {"i": {"randint": [0, size]}}, 1))
    assert sorted(config["i"] for config in configs) == list(range(size))
    if size > 16:
        assert [config["i"] for config in configs] != list(range(size))


def test_brute_force_that_is_ended_early_has_been_everywhere() -> None:
    """A tenth of a thousand configs has one of nearly each ten."""
    searcher = make("brute_force", {"i": {"randint": [0, 1000]}}, 1)
    seen = [(searcher.ask(number) or {})["i"] for number in range(100)]
    assert len({value // 100 for value in seen}) == 10
    assert abs(sum(seen) / 100 - 500) < 120


@pytest.mark.parametrize(
    ("space", "field"),
    [
        ({"a": {"randint": [0, 3]}, "n": {"lr": {"uniform": [0, 1]}}}, r"param_space\.n\.lr"),
        ({"q": {"qrandn": [0, 1, 0.5]}}, r"param_space\.q"),
    ],
)
def test_brute_force_of_what_has_no_end_is_refused(space: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError, match=rf"{field}: brute_force tries every value.*choice"):
        make("brute_force", space)


@pytest.mark.parametrize("kind", ["gp", "cma_es", "auto", "tpe"])
def test_grid_search_is_refused(kind: str) -> None:
    with pytest.raises(
        SpecError, match=rf"param_space\.g: grid_search cannot .* the {kind} search; .*choice"
    ):
        make(kind, SPACE | {"g": {"grid_search": [1, 2]}})


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [
        ("cma_es", "cmaes", "search"),
        ("gp", "torch", "gp"),
        ("gp", "scipy", "gp"),
        ("auto", "optuna", "ray"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str, extra: str
) -> None:
    for name in ("cma", "gp", "auto", "tpe", "optuna_model", "optuna_params"):
        monkeypatch.delitem(sys.modules, f"raysweep.search.models.{name}", raising=False)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        SpecError, match=rf"search: {kind} needs .*not installed; pip install raysweep\[{extra}\]"
    ):
        make(kind)
