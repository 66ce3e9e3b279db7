"""The Pareto front, against its definition."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.numeric.pareto import Point, find_front, front_first, point_of


def points_of(width: int) -> st.SearchStrategy[list[Point]]:
    few = st.sampled_from([0.0, 1.0, 2.0, 3.0, -math.inf, math.inf])  # so that many are equal
    return st.lists(st.tuples(*[few] * width), max_size=14)


def by_definition(points: Sequence[Point]) -> list[int]:
    def beats(one: Point, other: Point) -> bool:
        return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))

    there = [at for at, point in enumerate(points) if not any(beats(other, point) for other in points)]
    return sorted(there, key=lambda at: (points[at], at))


@given(points=st.integers(1, 5).flatmap(points_of))
def test_the_front_is_what_nothing_dominates_in_the_order_of_its_points(points: list[Point]) -> None:
    assert find_front(points) == by_definition(points)


@given(points=points_of(2))
def test_the_front_comes_first_and_the_others_keep_their_order(points: list[Point]) -> None:
    placed, front = front_first(points), by_definition(points)
    assert placed[: len(front)] == front
    assert placed[len(front) :] == sorted(set(range(len(points))) - set(front))


def test_a_front_of_ten_thousand_does_not_take_their_square() -> None:
    """One comparison of each with each would be a hundred million, which takes minutes."""
    number = 10_000
    points = [(at / number, 1.0 - at / number, 0.5) for at in range(number)]
    began = time.process_time()
    assert find_front(points) == list(range(number))
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("metrics", "point"),
    [
        ({"auc": 0.5, "size": 3}, (-0.5, 3.0)),
        ({"auc": 0.5}, None),
        ({"auc": 0.5, "size": "NaN"}, None),
        ({"auc": 0.5, "size": math.nan}, None),
        ({"auc": 0.5, "size": True}, None),
    ],
)
def test_a_point_has_a_finite_number_for_each_metric(metrics: dict[str, Any], point: Point | None) -> None:
    assert point_of(metrics, {"auc": "max", "size": "min"}) == point
