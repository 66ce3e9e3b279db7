"""A metric that is a text satisfies no constraint, and ends no sweep."""

from __future__ import annotations

import pytest

from raysweep.space.constraints import parse_constraint


@pytest.mark.parametrize("value", ["n/a", "12", [1], {"a": 1}, None])
def test_what_cannot_be_compared_cannot_be_told(value: object) -> None:
    assert parse_constraint("lat <= 20").violation({"lat": value}) is None
