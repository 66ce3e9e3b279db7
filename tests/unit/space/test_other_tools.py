"""Spaces of other tools are refused with their translation; what may be a constant is noted."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core import step
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import events as ev
from raysweep.errors import SpecError
from raysweep.space.other_tools import space_notes
from raysweep.specs import SweepSpec


def make(space: dict[str, Any], **fields: Any) -> SweepSpec:
    plain = {"name": "t", "trainable": "a:b", "param_space": space, "metric": "loss", "mode": "min"}
    return SweepSpec.model_validate(plain | fields)


@pytest.mark.parametrize(
    ("given", "tool", "domain"),
    [
        ({"values": [16, 32]}, "W&B", '{"choice": [16, 32]}'),
        ({"distribution": "uniform", "min": 0, "max": 1}, "W&B", '{"uniform": [0, 1]}'),
        ({"distribution": "int_uniform", "min": 1, "max": 4}, "W&B", '{"randint": [1, 5]}'),
        (
            {"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1},
            "W&B",
            '{"loguniform": [0.0001, 0.1]}',
        ),
        ({"distribution": "q_uniform", "min": 0, "max": 8, "q": 2}, "W&B", '{"quniform": [0, 8, 2]}'),
        ({"distribution": "normal", "mu": 0, "sigma": 1}, "W&B", '{"randn": [0, 1]}'),
        ({"distribution": "constant", "value": 3}, "W&B", '{"const": 3}'),
        ({"distribution": "beta", "a": 1, "b": 2}, "W&B", "one of the domains of param_space"),
        ({"_type": "uniform", "_value": [0, 1]}, "NNI", '{"uniform": [0, 1]}'),
        ({"_type": "choice", "_value": [1, "a"]}, "NNI", '{"choice": [1, "a"]}'),
        ({"_type": "normal", "_value": [0, 1]}, "NNI", '{"randn": [0, 1]}'),
        (
            {"parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.03"}},
            "Katib",
            '{"uniform": [0.01, 0.03]}',
        ),
        (
            {"parameterType": "int", "feasibleSpace": {"min": "2", "max": "5"}},
            "Katib",
            '{"randint": [2, 6]}',
        ),
        (
            {"parameterType": "categorical", "feasibleSpace": {"list": ["sgd", "adam"]}},
            "Katib",
            '{"choice": ["sgd", "adam"]}',
        ),
        ({"type": "float", "low": 1e-3, "high": 1.0, "log": True}, "Optuna", '{"loguniform": [0.001, 1.0]}'),
        ({"type": "int", "low": 1, "high": 8}, "Optuna", '{"randint": [1, 9]}'),
        ({"name": "x", "type": "range", "bounds": [0.0, 1.0]}, "Ax", '{"uniform": [0.0, 1.0]}'),
        ({"float": [0, 1]}, "another tool", '{"uniform": [0, 1]}'),
        ({"int": [1, 8]}, "another tool", '{"randint": [1, 9]}'),
        ("choice(a,b)", "Hydra", '{"choice": ["a", "b"]}'),
        ("range(0, 10)", "Hydra", '{"randint": [0, 10]}'),
        ("range(0, 9, 3)", "Hydra", '{"choice": [0, 3, 6]}'),
        ("interval(0, 1)", "Hydra", '{"uniform": [0, 1]}'),
        ("tag(log, interval(0.001, 1))", "Hydra", '{"loguniform": [0.001, 1]}'),
        ("tune.loguniform(1e-4, 1e-1)", "code", '{"loguniform": [0.0001, 0.1]}'),
    ],
    ids=str,
)
def test_it_is_refused_with_its_translation(given: Any, tool: str, domain: str) -> None:
    for space in ({"x": given}, {"net": {"x": given}}, {"m": {"choice": {"a": {"x": given}}}}):
        with pytest.raises(SpecError) as caught:
            make(space)
        text = str(caught.value)
        assert f"a search space in the format of {tool}" in text
        assert domain in text
        assert caught.value.field.endswith(".x")
    make({"x": {"const": given}, "y": {"uniform": [0, 1]}})


@pytest.mark.parametrize(
    "given",
    [
        {"values": [{"uniform": [0, 1]}], "other": 1},
        {"distribution": "uniform", "loc": 0},
        {"distribution": {"choice": ["a", "b"]}, "min": 0},
        {"min": {"uniform": [0, 1]}, "max": {"uniform": [1, 2]}},
        {"low": {"uniform": [0, 1]}, "high": 2},
        {"float": 32},
        "adam",
        "f(x)",
        "linear(0)",
    ],
    ids=str,
)
def test_a_constant_stays_one(given: Any) -> None:
    assert list(space_notes(make({"x": given, "y": {"uniform": [0, 1]}}).param_space, is_repeated=True)) == []


def test_what_may_be_meant_as_a_domain_is_noted_once() -> None:
    spec = make(
        {"bs": [16, 32], "clip": {"min": 0, "max": 1}, "one": [1], "meant": {"const": [1, 2]}}, num_samples=3
    )
    state = SweepState.create(spec, 1)
    for generation in (1, 2):
        step(state, ev.ControllerStarted(at=float(generation), generation=generation))
    nothing, bounds, listed = sorted(state.notes, key=lambda note: ("list" in note, "clip" in note))
    assert nothing == "param_space has no domain: every trial runs the same config"
    assert listed.startswith("param_space.bs is a list and is passed as it is: to choose from it write")
    assert '{"choice": [16, 32]}' in listed
    assert 'param_space.clip is {"min": 0, "max": 1} in every trial' in bounds
    assert '{"randint": [0, 2]}' in bounds


@pytest.mark.parametrize(
    ("space", "fields", "is_noted"),
    [
        ({"x": 1}, {}, False),
        ({"x": 1}, {"num_samples": 2}, True),
        ({"x": {"const": 1}}, {"num_samples": 2}, True),
        ({"x": {"uniform": [0, 1]}}, {"num_samples": 2}, False),
        ({"x": [1, {"y": {"uniform": [0, 1]}}]}, {"num_samples": 2}, False),
        ({"x": 1}, {"num_samples": 2, "points": [{"x": 1}]}, False),
        ({"x": 1}, {"num_samples": 2, "search": {"configs": {"configs": [{"x": 1}, {"x": 2}]}}}, False),
    ],
)
def test_a_space_in_which_nothing_is_searched(space: Any, fields: Any, is_noted: bool) -> None:
    state = SweepState.create(make(space, **fields), 1)
    step(state, ev.ControllerStarted(at=1.0, generation=1))
    assert any("no domain" in note for note in state.notes) == is_noted
