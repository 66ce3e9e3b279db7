"""Places in the unit interval stand for values as evenly as draws do, and lead back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.search.machinery.points import holds
from raysweep.space.domains import Choice, Domain, Float, Integer, Normal
from raysweep.space.units import from_unit, to_unit

DOMAINS: dict[str, Domain] = {
    "float": Float(lower=-2.0, upper=3.0),
    "log": Float(lower=1e-4, upper=1e-1, log=True),
    "quantised": Float(lower=0.1, upper=0.9, q=0.1),
    "quantised log": Float(lower=0.01, upper=10.0, log=True, q=0.01),
    "integer": Integer(lower=-3, upper=9),
    "stepped": Integer(lower=8, upper=128, q=8),
    "log integer": Integer(lower=1, upper=1000, log=True),
    "stepped log": Integer(lower=8, upper=512, log=True, q=8),
    "normal": Normal(mean=2.0, sd=0.5),
    "quantised normal": Normal(mean=0.0, sd=2.0, q=0.5),
    "choice": Choice(values=("a", None, {"k": [1]})),
}
ENDS = [0.0, 1.0, 0.5, 2.0**-60, 1 - 2.0**-53]


@pytest.mark.parametrize("name", DOMAINS)
@given(place=st.floats(0, 1) | st.sampled_from(ENDS))
def test_a_place_is_a_value_of_the_domain(name: str, place: float) -> None:
    value = from_unit(DOMAINS[name], place)
    assert holds(DOMAINS[name], value)
    assert not isinstance(DOMAINS[name], Integer) or type(value) is int


@pytest.mark.parametrize("name", [n for n, d in DOMAINS.items() if isinstance(d, Float | Integer)])
@given(place=st.floats(0, 1))
def test_the_place_of_a_value_stands_for_that_value(name: str, place: float) -> None:
    domain: Any = DOMAINS[name]
    value = from_unit(domain, place)
    back = to_unit(domain, value)
    assert 0 <= back <= 1
    assert from_unit(domain, back) == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["integer", "stepped", "choice", "quantised", "log integer"])
def test_values_are_as_frequent_as_draws(name: str) -> None:
    """Over many places, each value stands as often as its share of the domain's own draws says."""
    from random import Random

    domain, count, random = DOMAINS[name], 20_000, Random(1)
    placed = Counter(repr(from_unit(domain, (n + 0.5) / count)) for n in range(count))
    drawn = Counter(repr(domain.sample(random)) for _ in range(count))
    for value, times in drawn.most_common(8):
        assert placed[value] == pytest.approx(times, rel=0.15)


@pytest.mark.parametrize(("name", "value"), [("float", 3.5), ("log", 0.2), ("integer", 9), ("stepped", 136)])
def test_a_value_outside_has_no_place(name: str, value: float) -> None:
    domain: Any = DOMAINS[name]
    with pytest.raises(ValueError, match="is outside"):
        to_unit(domain, value)
