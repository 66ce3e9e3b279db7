"""Random nested spaces: each config fits, and a resume decides the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.search import Searcher, make_searcher
from raysweep.specs import SweepSpec
from tests.unit.search.branches import (
    SEARCHES,
    ask_all,
    fits,
    make_spec,
    score,
)

NUMBERS = st.sampled_from(
    [
        {"uniform": [0, 1]},
        {"loguniform": [1e-3, 1]},
        {"quniform": [0, 1, 0.25]},
        {"randn": [0, 1]},
        {"qrandn": [0, 1, 1]},
    ]
)
DISCRETE = st.sampled_from(
    [{"randint": [0, 4]}, {"lograndint": [1, 9]}, {"choice": [1, "a", None]}, {"const": {"k": 1}}, 5, "s"]
)
NAMES = st.sampled_from(["a", "b", "c.d", "e/f", "0"])


def _nested(leaf: st.SearchStrategy[Any], word: str = "choice") -> st.SearchStrategy[dict[str, Any]]:
    node = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda parts: {word: parts}),
            st.dictionaries(NAMES, inner, max_size=2),
            st.lists(inner, max_size=2),
        ),
        max_leaves=7,
    )
    return st.dictionaries(NAMES, node, min_size=1, max_size=3)


def play(searcher: Searcher, until: int, told: dict[int, float]) -> list[dict[str, Any]]:
    """Two at a time: each is told when the one after it has been asked for."""
    found: list[dict[str, Any]] = []
    for number in range(until):
        config = searcher.ask(number)
        if config is None:
            break
        found.append(config)
        if number:
            told[number - 1] = score(found[number - 1])
            searcher.tell(number - 1, told[number - 1], "completed")
    return found


def check(spec: SweepSpec, asks: int, cut: int) -> None:
    """Its configs fit the space, and a resume at any place continues as if nothing had been."""
    try:
        searcher = make_searcher(spec, 3)
    except SpecError as error:
        if "all are in branches" in error.problem:
            return
        raise
    told: dict[int, float] = {}
    configs = play(searcher, asks, told)
    assert configs
    assert all(fits(spec.param_space, config) for config in configs)
    assert searcher.total is None or len(configs) == min(asks, searcher.total)
    cut %= len(configs)
    rebuilt = make_searcher(spec, 3)
    for number in range(cut):
        rebuilt.restore(number, configs[number])
        if number < cut - 1:
            rebuilt.tell(number, told[number], "completed")
    assert rebuilt.ask(cut) == configs[cut]


CHEAP = ["random", "tpe", "tpe_alone", "cma_es", "nsga2"]
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("search", CHEAP)
@settings(SLOW, max_examples=12)
@given(space=_nested(NUMBERS | DISCRETE), cut=st.integers(0, 12))
def test_in_any_nested_space_configs_fit_and_a_resume_decides_the_same(
    search: str, space: dict[str, Any], cut: int
) -> None:
    check(make_spec(search=SEARCHES[search], param_space=space, num_samples=12), 12, cut)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
@settings(SLOW, max_examples=150)
@given(space=_nested(NUMBERS | DISCRETE), cut=st.integers(0, 24))
def test_in_very_many_nested_spaces(search: str, space: dict[str, Any], cut: int) -> None:
    check(make_spec(search=SEARCHES[search], param_space=space, num_samples=24), 24, cut)


@settings(SLOW, max_examples=20)
@given(space=_nested(DISCRETE), cut=st.integers(0, 60))
def test_of_any_discrete_tree_distinct_draws_have_each_config_once(space: dict[str, Any], cut: int) -> None:
    spec = make_spec(search={"random": {"distinct": True}}, param_space=space, num_samples=300)
    assert len({str(config) for config in ask_all(spec)}) == min(300, spec.space.cardinality or 0)
    check(spec, 12, cut)


@settings(SLOW, max_examples=20)
@given(
    space=_nested(NUMBERS | DISCRETE | st.just({"grid_search": [1, 2]}), "grid_search"),
    cut=st.integers(0, 60),
)
def test_in_any_grid_of_branches_configs_fit(space: dict[str, Any], cut: int) -> None:
    check(make_spec(search="random", param_space=space, num_samples=2), 30, cut)
