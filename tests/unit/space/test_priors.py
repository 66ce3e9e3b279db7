# ruff: noqa: E501  (one case a line)
"""Priors of parameters: how they are written, and what is drawn by them."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import mean, stdev
from typing import Any

import pytest

from raysweep.search.machinery.points import holds
from raysweep.space.parsed import normalise, parse
from raysweep.space.priors import centre_of, draw_believed, has_prior

LR = {"loguniform": [1e-5, 1e-1], "prior": {"normal": 3e-4, "sigma": 0.5}}


def draws(node: dict[str, Any], count: int = 2000) -> list[Any]:
    [(_, domain)] = parse(normalise({"x": node})).leaves
    rng = Random(0)
    return [draw_believed(domain, rng) for _ in range(count)]


def test_sigma_is_of_the_natural_logarithm_where_the_domain_is_logarithmic() -> None:
    logs = [math.log(value) for value in draws(LR)]
    assert mean(logs) == pytest.approx(math.log(3e-4), abs=0.05)
    assert stdev(logs) == pytest.approx(0.5, rel=0.1)


def test_sigma_is_of_the_parameter_elsewhere() -> None:
    found = draws({"uniform": [-100, 100], "prior": {"normal": 7, "sigma": 2}})
    assert mean(found) == pytest.approx(7, abs=0.2)
    assert stdev(found) == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    "node",
    [
        {"uniform": [0, 1], "prior": {"normal": 0, "sigma": 5}},
        {"uniform": [0, 1e6], "prior": {"normal": 1e6, "sigma": 1e-3}},
        {"quniform": [0, 1, 0.25], "prior": {"normal": 0.5, "sigma": 0.2}},
        {"loguniform": [1e-9, 1], "prior": {"normal": 1, "sigma": 40}},
        {"qloguniform": [2, 10, 2], "prior": {"normal": 3, "sigma": 1}},
        {"randint": [1, 9], "prior": {"normal": 8, "sigma": 2}},
        {"qrandint": [0, 30, 5], "prior": {"normal": 12, "sigma": 9}},
        {"lograndint": [1, 1025], "prior": {"normal": 64, "sigma": 1}},
    ],
)
def test_what_is_drawn_is_in_the_domain(node: dict[str, Any]) -> None:
    [(_, domain)] = parse(normalise({"x": node})).leaves
    assert all(holds(domain, value) for value in draws(node, 300))
    assert holds(domain, centre_of(domain))


def test_a_very_wide_prior_is_even_and_one_value_stays() -> None:
    found = draws({"uniform": [0, 1], "prior": {"normal": 0.1, "sigma": 1e308}})
    assert mean(found) == pytest.approx(0.5, abs=0.03)
    assert stdev(found) == pytest.approx(12**-0.5, rel=0.05)
    assert set(draws({"loguniform": [2, 2], "prior": {"normal": 2, "sigma": 1}}, 9)) == {2.0}


def test_a_choice_has_weights_by_place_or_by_name() -> None:
    by_place = normalise({"x": {"choice": ["adam", "sgd", "lion"], "prior": [3, 1, 0]}})
    assert normalise({"x": {"choice": ["adam", "sgd", "lion"], "prior": {"adam": 3, "sgd": 1}}}) == by_place
    found = draws(by_place["x"])
    assert found.count("adam") / 2000 == pytest.approx(0.75, abs=0.04)
    assert "lion" not in found


def test_a_choice_between_branches_has_weights_by_name() -> None:
    space = normalise({"m": {"choice": {"svm": {"c": LR}, "forest": {"n": 3}}, "prior": {"forest": 1}}})
    assert space["m"]["prior"] == {"svm": 0.0, "forest": 1.0}
    parsed = parse(space)
    assert centre_of(dict(parsed.leaves)[("m",)]) == "forest"
    assert ("m", "svm", "c") in dict(parsed.leaves)
    assert normalise(space) == space


def test_a_prior_is_found_wherever_it_is() -> None:
    assert has_prior(normalise({"a": [{"b": LR}]}))
    assert has_prior(normalise({"m": {"choice": {"svm": {"c": LR}, "no": 1}}}))
    assert not has_prior(normalise({"a": {"const": {"prior": 1}}, "b": {"prior": {"uniform": [0, 1]}}}))


@pytest.mark.parametrize(
    ("node", "line"),
    [
        (LR | {"prior": 3e-4}, "prior: expected a normal distribution, got 0.0003; write {\"normal\": the value believed best, \"sigma\": how far it may be off}"),
        (LR | {"prior": {"normal": 1}}, "prior: has no 'sigma'; write {\"normal\": the value believed best, \"sigma\": how far it may be off}"),
        (LR | {"prior": {"normal": 1, "sigma": 1}}, "prior.normal: 1 is outside 1e-05 to 0.1; give a value of the parameter"),
        (LR | {"prior": {"normal": 1e-3, "sigma": 0}}, "prior.sigma: must be > 0, got 0; give it in the unit of the natural logarithm"),
        (LR | {"prior": {"normal": "1e-3", "sigma": 1}}, "prior.normal: expected a number, got '1e-3'; write a number, without quotes"),
        (LR | {"prior": {"mean": 1e-3, "sigma": 1}}, "prior: 'mean' is not known here; use one of 'normal', 'sigma'"),
        ({"choice": [1, 2], "prior": [1]}, "prior: has 1 weights for 2 values; give a weight for each value, as [3, 1], or by name, as {adam: 3, sgd: 1}"),
        ({"choice": [1, 2], "prior": [0, 0]}, "prior: weights must be 0 or more, and one above 0, got [0, 0]; give such weights"),
        ({"choice": ["a", "b"], "prior": {"c": 1}}, "prior: 'c' is none of the values; use one of 'a', 'b'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(refusal: Callable[..., str], node: Any, line: str) -> None:
    assert refusal(param_space={"x": node}) == f"param_space.x.{line}"


@pytest.mark.parametrize("node", [{"grid_search": [1, 2]}, {"randn": [0, 1]}, {"const": 3}])
def test_other_domains_have_none(refusal: Callable[..., str], node: dict[str, Any]) -> None:
    assert f"param_space.x: {next(iter(node))!r} has no prior" in refusal(
        param_space={"x": node | {"prior": [1, 2]}}
    )


@pytest.mark.parametrize("search", ["grid"])
def test_a_search_that_does_not_use_them_refuses_them(refusal: Callable[..., str], search: str) -> None:
    space: dict[str, Any] = {"x": {"randint": [0, 9], "prior": {"normal": 3, "sigma": 1}}}
    if search == "grid":
        space["g"] = {"grid_search": [1, 2]}
    line = refusal(param_space=space, search=search, num_samples=30)
    assert line.startswith(f"search: {search} does not use priors, and param_space has some")
