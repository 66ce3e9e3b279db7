"""Numbers, columns and durations as people read them."""

from __future__ import annotations

import math

import pytest

from raysweep.outcome.showing.formatting import show_column


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.7213, 0.72, 0.5], ["0.7213", "0.7200", "0.5000"]),
        ([7.639077993620655, 0.00442198752198811], ["7.63908", "0.00442199"]),
        ([12.0, 3.0], ["12", "3"]),
        ([1.5, 3], ["1.5", "3"]),
        ([123456.789, 1.23456], ["123457", "1.23456"]),
        ([-0.5, 0.25], ["-0.50", "0.25"]),
        ([0.0, 0.5, 0.00012], ["0.00000", "0.50000", "0.00012"]),
        ([1e-9, 0.5], ["1.00000e-09", "5.00000e-01"]),
        ([1234567.0, 1.5], ["1.23457e+06", "1.50000e+00"]),
        ([1.0, math.nan, -math.inf, None, "adam", True], ["1", "nan", "-inf", "", "adam", "True"]),
        ([], []),
        ([None], [""]),
    ],
)
def test_the_floats_of_a_column_have_the_same_digits(values: list[object], shown: list[str]) -> None:
    assert show_column(values) == shown
