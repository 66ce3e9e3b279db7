"""Constraints: what they say, how far metrics are from them, and what is wrong with a text that is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.space.constraints import LEAST, parse_constraint
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes

FINITE = st.floats(-1e6, 1e6)


def make(**fields: Any) -> SweepSpec:
    plain = {
        "name": "s",
        "trainable": "m:f",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "auc",
        "mode": "max",
    }
    return SweepSpec.model_validate(plain | fields)


@pytest.mark.parametrize(
    ("text", "metrics", "far"),
    [
        ("a <= 20", {"a": 21.5}, 1.5),
        ("a <= 20", {"a": 20}, 0.0),
        ("a <= 20", {"a": 12}, -8.0),
        ("a < 20", {"a": 20}, LEAST),
        ("a >= 0.9", {"a": 0.4}, 0.5),
        ("10 < a <= 20", {"a": 4}, 6.0),
        ("10 < a <= 20", {"a": 19}, -1.0),
        ("a + 2 * b <= 10", {"a": 6, "b": 4}, 4.0),
        ("a <= 1 and b <= 1", {"a": 3, "b": 6}, 5.0),
        ("a <= 1 or b <= 1", {"a": 3, "b": 6}, 2.0),
        ("a <= 1 or b <= 1", {"a": 3, "b": 0.5}, -0.5),
        ("not a <= 20", {"a": 15}, 5.0),
        ("not a <= 20", {"a": 20}, LEAST),
        ("not a <= 20", {"a": 21}, -1.0),
        ("a == 3", {"a": 5}, 2.0),
        ("a == 3", {"a": 3}, 0.0),
        ("a != 3", {"a": 3}, LEAST),
        ('kind == "ok"', {"kind": "bad"}, 1.0),
        ('kind == "ok"', {"kind": "ok"}, 0.0),
        ("is_fair == true", {"is_fair": False}, 1.0),
        ("eval.a <= 2", {"eval": {"a": 3}}, 1.0),
        ('metrics["eval/loss"] <= 2', {"eval/loss": 3}, 1.0),
        ("metrics <= 2", {"metrics": 3}, 1.0),
    ],
)
def test_how_far_metrics_are_from_a_constraint(text: str, metrics: dict[str, Any], far: float) -> None:
    assert parse_constraint(text).violation(metrics) == pytest.approx(far, rel=1e-9, abs=0)


@given(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), FINITE, FINITE, st.booleans(), st.booleans())
def test_it_is_satisfied_just_where_the_relation_holds(
    sign: str, a: float, b: float, negated: bool, joined: bool
) -> None:
    text = f"{'not ' if negated else ''}a {sign} b" + (" and a < 10" if joined else "")
    constraint = parse_constraint(text)
    far = constraint.violation({"a": a, "b": b})
    assert far is not None
    assert (far <= 0) == constraint.relation.holds({"a": a, "b": b})


@pytest.mark.parametrize(
    "metrics", [{}, {"a": "NaN"}, {"a": "Infinity"}, {"a": None}, {"a": True}, {"a": [1]}, {"a": 0, "b": 0}]
)
def test_what_cannot_be_told_is_not_guessed(metrics: dict[str, Any]) -> None:
    text = "1 / b <= 2" if "b" in metrics else "a + 0 <= 20"
    assert parse_constraint(text).violation(metrics) is None


@pytest.mark.parametrize(
    ("text", "metrics", "missing"),
    [
        ("a + b <= 2", {"a": 1}, "b"),
        ("a + b <= 2", {"a": 1, "b": "NaN"}, None),
        ('metrics["eval/loss"] < 1', {"a": 1}, "eval/loss"),
        ("eval.loss < 1", {"eval": {}}, "eval.loss"),
    ],
)
def test_a_metric_that_is_not_there_is_named(text: str, metrics: dict[str, Any], missing: str | None) -> None:
    assert parse_constraint(text).missing(metrics) == missing


@pytest.mark.parametrize(
    ("constraints", "line"),
    [
        (3, "constraints: expected a list of constraints, got 3; write such as"),
        (["a <="], "constraints[0]: 'a <=' is not an expression; write such as \"latency_ms <= 20\""),
        (["a < 2", ""], "constraints[1]: expected a constraint, got ''"),
        (["a < 2", "1 < 2"], "constraints[1]: '1 < 2' names no metric"),
        (["a + 1"], "constraints[0]: 'a + 1' is not a condition"),
        (["open('f') < a"], "constraints[0]: \"open('f')\" is not known here"),
        (["a < 2", " a < 2"], "constraints[1]: 'a < 2' is there twice; leave one of them out"),
    ],
)
def test_what_is_no_constraint_is_refused_by_its_place(constraints: Any, line: str) -> None:
    with pytest.raises(SpecError) as raised:
        make(constraints=constraints)
    assert str(raised.value).startswith(line)


def test_constraints_change_the_digest() -> None:
    plain = make()
    assert plain.digest() == make(constraints=[]).digest()
    bounded = make(constraints="latency_ms <= 20")
    assert bounded.constraints == ("latency_ms <= 20",)
    assert bounded.digest() != plain.digest()
    assert SweepSpec.from_any(bounded.to_dict()) == bounded


def test_other_constraints_would_mix_two_searches() -> None:
    for one, two in ((make(), make(constraints=["a < 1"])), (make(constraints=["a < 1"]), make())):
        found = changes(one, two)
        assert not found.safe
        assert [line.split(":")[0] for line in found.unsafe] == ["constraints"]
