"""How far configs lie from each other."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.search.machinery.distance import Grid, apart


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ({"lr": 0.001}, {"lr": 0.001}, 0.0),
        ({"lr": 0.001}, {"lr": 1000.0}, (3 / 4) ** 2),  # the first and the last of four
        ({"lr": 0.001}, {"lr": 0.01}, (1 / 4) ** 2),
        ({"lr": 0.0}, {"lr": 1e9}, 1.0),  # beyond all of them
        ({"net": {"kind": "a"}}, {"net": {"kind": "b"}}, 1.0),
        ({"net": {"kind": "a"}}, {}, 1.0),
        ({"flag": True}, {"flag": 1}, 0.0),
        ({"flag": True}, {"flag": False}, 1.0),
        ({"lr": None}, {"lr": 0.001}, 1.0),
        ({"layers": [1, 2]}, {"layers": [1, 3]}, 1.0),
        ({"width": 7}, {"width": 9}, 1.0),  # no config has one: they differ, nobody knows how much
    ],
)
def test_apart(one: dict[str, Any], other: dict[str, Any], distance: float) -> None:
    grid = Grid([{"lr": lr} for lr in (0.001, 0.01, 0.1, 1000.0)])
    assert apart(grid.place(one), grid.place(other)) == pytest.approx(distance)
    assert apart(grid.place(other), grid.place(one)) == pytest.approx(distance)
