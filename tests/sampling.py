"""Which cases of a test run with every change, and which every night: a sample here, the whole there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

TIMES = int(os.environ.get("RAYSWEEP_EXAMPLES", "1"))
"""How many times as many examples a property is tried with: `make test-all` sets 10."""


def sampled(cases: Iterable[Any], is_kept: Callable[[Any], bool]) -> list[Any]:
    """The cases as parameters, of which those that are not kept are `slow`: only `make test-all` runs them.

    A tuple stands for several arguments, as in `pytest.mark.parametrize`.
    """
    params = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        params.append(pytest.param(*values, marks=() if is_kept(case) else pytest.mark.slow))
    assert any(not param.marks for param in params), "no case is left for every day"
    return params


def first_of(cases: Iterable[Any]) -> list[Any]:
    """The first case for every day, the others `slow`."""
    every = list(cases)
    return sampled(every, lambda case: case is every[0])


def examples(few: int) -> int:
    """How many examples a property is tried with: few with every change, many every night."""
    return few * TIMES
