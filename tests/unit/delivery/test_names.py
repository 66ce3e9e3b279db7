"""Names that a tracker would make alike stay two names, whatever comes first, and are named once."""

from __future__ import annotations

import logging
from itertools import permutations

import pytest

from raysweep.hooks.mlflow import MAX_KEY_CHARS, _key
from raysweep.hooks.naming import Names
from raysweep.hooks.numbers import flat, with_iteration

ALIKE = ["acc@1", "acc_1", "acc#1", "/acc_1", "x" * 300, "x" * 260, "loss"]


def names() -> Names:
    return Names("mlflow", _key, MAX_KEY_CHARS)


def test_names_that_mlflow_would_make_alike_are_apart_in_any_order(caplog: pytest.LogCaptureFixture) -> None:
    expected = dict(names().of(ALIKE))
    assert expected["acc_1"] == "acc_1"
    assert expected["loss"] == "loss"
    assert len(set(expected.values())) == len(ALIKE)
    assert all(_key(name) == name for name in expected.values())
    for order in list(permutations(ALIKE))[::97]:
        assert names().of(order) == expected
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="raysweep"):
        made = names()
        for _ in range(3):
            made.of(["acc_1", "acc@1"])
    (record,) = caplog.records
    text = f"'acc@1' is written as {made.of(())['acc@1']!r}: 'acc_1' is the name of 'acc_1' there"
    assert record.getMessage() == f"callback mlflow: {text}"


def test_a_name_with_a_dot_and_a_nested_one_are_two() -> None:
    assert flat({"a": {"b": 1}, "a.b": 2, "a.b#2": 3}) == {"a.b": 1, "a.b#2": 2, "a.b#2#2": 3}


def test_a_metric_named_iteration_does_not_replace_the_iteration() -> None:
    assert with_iteration(3, {"iteration": 70, "loss": 0.5}) == {
        "iteration": 3,
        "metrics.iteration": 70.0,
        "loss": 0.5,
    }
    assert with_iteration(3, {"iteration": 7, "metrics": {"iteration": 8}}) == {
        "iteration": 3,
        "metrics.iteration": 8.0,
        "metrics.iteration#2": 7.0,
    }
