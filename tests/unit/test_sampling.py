"""What runs with every change and what every night."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import first_of, sampled

ROOT = Path(__file__).parents[2]


def everyday(params: list[Any]) -> list[tuple[Any, ...]]:
    return [param.values for param in params if not param.marks]


def test_what_is_not_kept_is_slow_and_nothing_is_left_out() -> None:
    params = sampled([1, 2, 3], lambda number: number == 2)
    assert [param.values for param in params] == [(1,), (2,), (3,)]
    assert everyday(params) == [(2,)]
    assert {mark.name for param in params for mark in param.marks} == {"slow"}


def test_a_tuple_is_several_arguments() -> None:
    params = first_of([("worker", 1.0), ("process", 2.0)])
    assert [param.values for param in params] == [("worker", 1.0), ("process", 2.0)]
    assert everyday(params) == [("worker", 1.0)]


def test_one_case_stays_for_every_day() -> None:
    with pytest.raises(AssertionError, match="no case is left"):
        sampled(["a", "b"], lambda case: False)


def test_make_test_all_leaves_nothing_out() -> None:
    """It selects by no mark; `test` and `test-servers` share what is not slow."""
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^(test[\w-]*):[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE))
    assert "pytest $(TESTS)" in recipes["test-all"]
    assert " -m " not in recipes["test-all"].replace("python -m pytest", "")
    assert "-m 'servers and not slow'" in recipes["test-servers"]
    assert "MARK ?= not slow and not servers\n" in makefile
