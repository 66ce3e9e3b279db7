"""Figures that `evaluate` returns, checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from raysweep.judge.figures import Figures, FiguresError, decode_figures, mean_of, read_figures


@pytest.mark.parametrize(
    ("returned", "whole", "slices"),
    [
        (0.7, (0.7,), {}),
        (3, (3.0,), {}),
        (np.float64(0.5), (0.5,), {}),
        ([0.7, 0.8], (0.7, 0.8), {}),
        (np.array([1.0, 2.0]), (1.0, 2.0), {}),
        ({"b": 0.5, "a": [0.1, 0.2]}, (0.1, 0.2, 0.5), {"a": (0.1, 0.2), "b": (0.5,)}),
        ({"all": [0.6, 0.7], "a": 0.5}, (0.6, 0.7), {"a": (0.5,)}),
    ],
)
def test_three_shapes_are_read(returned: Any, whole: tuple[float, ...], slices: dict[str, Any]) -> None:
    assert read_figures(returned, "d") == Figures(whole=whole, slices=slices, model="d")


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "returned a NoneType, which is not a number"),
        (True, "returned True (a bool), which is not a number"),
        ("0.7", "returned '0.7' (a str), which is not a number"),
        (math.nan, "returned nan, which is not finite"),
        ([0.5, math.inf], "returned as number 2 inf, which is not finite"),
        ([], "returned an empty list"),
        ({}, "returned an empty mapping"),
        ({"JFK": []}, "returned for 'JFK' an empty list"),
        ({"JFK": {"x": 1}}, "returned for 'JFK' {'x': 1} (a dict), which is not a number"),
        ({7: 0.5}, "returned a slice named 7, which is not text"),
        ([[0.5]], "returned as number 1 [0.5] (a list), which is not a number"),
        (10**400, "returned inf, which is not finite"),
    ],
)
def test_each_other_shape_is_one_line(returned: Any, problem: str) -> None:
    with pytest.raises(FiguresError) as raised:
        read_figures(returned)
    text = str(raised.value)
    assert text.startswith(f"evaluate {problem}; return a number, ")
    assert "\n" not in text


def test_stored_figures_are_checked() -> None:
    figures = read_figures({"a": [1, 2]}, "d")
    assert decode_figures(figures.to_json().encode()) == figures
    with pytest.raises(FiguresError, match="which is not finite"):
        decode_figures(b'{"whole": ["NaN"], "slices": {}}')


def test_the_mean_of_large_numbers() -> None:
    assert mean_of([1e308, 1e308]) == 1e308
    assert mean_of([0.0, 0.0]) == 0.0
