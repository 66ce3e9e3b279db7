"""Draws stay inside what Ray Tune would draw, and reach all of it."""

from __future__ import annotations

import math
import random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.space.parsed import parse
from raysweep.specs import Choice, Const, Domain, Float, Grid, Integer, Normal, SampleFrom
from tests.unit.specs.strategies import DOMAINS


def draws(domain: Domain, count: int = 3000) -> list[Any]:
    rng = random.Random(11)
    return [domain.sample(rng) for _ in range(count)]


@given(DOMAINS, st.integers(0, 2**32))
def test_every_draw_is_in_the_domain(written: dict[str, Any], seed: int) -> None:
    ((_, domain),) = parse({"x": written}).leaves
    rng = random.Random(seed)
    for _ in range(20):
        value = domain.sample(rng)
        if isinstance(domain, Float):
            assert type(value) is float
            assert domain.lower <= value <= domain.upper
            if domain.q:
                assert math.isclose(value / domain.q, round(value / domain.q), abs_tol=1e-6)
        elif isinstance(domain, Integer):
            assert type(value) is int
            assert domain.low <= value <= domain.high
            assert value % domain.step == 0
        elif isinstance(domain, Choice):
            assert value in domain.values
        elif isinstance(domain, Const):
            assert value == domain.value


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (Integer(lower=2, upper=5), {2, 3, 4}),
        (Integer(lower=-3, upper=0), {-3, -2, -1}),
        (Integer(lower=0, upper=10, q=5), {0, 5, 10}),
        (Integer(lower=1, upper=11, q=5), {5, 10}),
        (Integer(lower=2, upper=5, q=1), {2, 3, 4}),
        (Integer(lower=1, upper=4, log=True), {1, 2, 3}),
        (Integer(lower=1, upper=8, log=True, q=4), {4, 8}),
        (Integer(lower=-7, upper=-1, q=3), {-6, -3}),
        (Float(lower=0, upper=1, q=0.25), {0, 0.25, 0.5, 0.75, 1}),
        (Float(lower=0.5, upper=2, log=True, q=0.5), {0.5, 1, 1.5, 2}),
        (Float(lower=0.1, upper=0.3, q=0.1), {0.1, 0.2, 0.3}),
        (Choice(values=("a", "b")), {"a", "b"}),
        (Grid(values=(1, 2)), {1, 2}),
        (Const(value=7), {7}),
    ],
)
def test_reaches_exactly_these_values(domain: Domain, values: set[Any]) -> None:
    assert set(draws(domain)) == values
    assert domain.cardinality == len(values)
    assert domain.is_discrete


def test_ends_of_a_quantised_float_are_half_as_likely() -> None:
    drawn = draws(Float(lower=0, upper=1, q=0.5), 8000)
    assert drawn.count(0.5) / 8000 == pytest.approx(0.5, abs=0.02)


def test_steps_of_a_quantised_integer_are_equally_likely() -> None:
    drawn = draws(Integer(lower=0, upper=10, q=5), 9000)
    for value in (0, 5, 10):
        assert drawn.count(value) / 9000 == pytest.approx(1 / 3, abs=0.02)


def test_logarithms_are_uniform() -> None:
    logs = [math.log10(value) for value in draws(Float(lower=1e-4, upper=1, log=True), 8000)]
    assert fmean(logs) == pytest.approx(-2, abs=0.05)
    whole = draws(Integer(lower=1, upper=1000, log=True), 8000)
    assert sum(value < 10 for value in whole) / 8000 == pytest.approx(1 / 3, abs=0.02)


def test_normal() -> None:
    drawn = draws(Normal(mean=5, sd=2), 8000)
    assert fmean(drawn) == pytest.approx(5, abs=0.1)
    assert fmean((value - 5) ** 2 for value in drawn) == pytest.approx(4, abs=0.3)
    assert all(value % 0.5 == 0 for value in draws(Normal(mean=0, sd=1, q=0.5)))


def test_what_cannot_be_counted() -> None:
    for domain in (Float(lower=0, upper=1), Normal(), SampleFrom(function=lambda: 1)):
        assert domain.cardinality is None
        assert not domain.is_discrete
        assert isinstance(domain, Domain)
    assert Normal(q=1.0).is_discrete


def test_logarithmic_bounds_survive_rounding() -> None:
    """exp(log(5)) is 4.999..., which must not become 4."""
    for bound in range(1, 200):
        assert set(draws(Integer(lower=bound, upper=bound + 1, log=True), 5)) == {bound}
        domain = Float(lower=bound / 7, upper=bound / 7, log=True)
        assert draws(domain, 2) == [bound / 7, bound / 7]
