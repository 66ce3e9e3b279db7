"""`resources.by_config`: amounts that follow from a config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep import Resources, SweepSpec
from raysweep.errors import SpecError
from raysweep.spec.amounts import parse_amount

FIELD = "resources.by_config.memory"


def spec(memory: Any, space: dict[str, Any] | None = None, **resources: Any) -> SweepSpec:
    return SweepSpec(
        name="a",
        trainable="a:b",
        metric="loss",
        mode="min",
        param_space=space or {"width": {"randint": [1, 9]}, "net": {"depth": {"choice": [2, 3]}}},
        resources={"memory": 10**9, "by_config": {"memory": memory}, **resources},
    )


def problem_of(memory: Any, **fields: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        spec(memory, **fields)
    return caught.value


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1e9 + 4e6 * width", 1_020_000_000), ("net.depth * 0.3", 1), ('net["depth"] - width', -3)],
)
def test_an_amount_is_told_of_a_config_and_rounded_up(text: str, amount: int) -> None:
    assert parse_amount(text).of({"width": 5, "net": {"depth": 2}}) == amount


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("1 / x", {"x": 0}),
        ("1e308 * x", {"x": 10.0}),
        ("x", {"x": True}),
        ("x + 1", {"x": "a"}),
        ("x", {"x": "a"}),
    ],
)
def test_what_is_no_number_is_refused_by_its_field(text: str, config: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_amount(text).of(config)
    assert caught.value.field == FIELD


def test_a_parameter_in_a_branch_that_is_not_there_says_nothing() -> None:
    assert parse_amount("2 * net.wide.width").of({"net": {"flat": {}}}) is None


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ("1e9", "names no parameter"),
        ("width +", "is no expression"),
        ("width > 3", "is true or false"),
        ("not width", "is true or false"),
        ("open(width)", "is not known here"),
        ("1e9 * widht", "is not in param_space"),
        (5, "expected an expression"),
        ("1 + " * 500 + "width", "is longer than"),
    ],
)
def test_a_wrong_expression_is_refused_before_anything_starts(memory: Any, said: str) -> None:
    error = problem_of(memory)
    assert FIELD in str(error)
    assert said in str(error)


def test_the_least_must_be_given_too() -> None:
    with pytest.raises(SpecError, match="give memory too"):
        Resources(by_config={"memory": "width"})


def test_it_may_be_of_what_a_function_makes() -> None:
    space = {"a": 1, "bytes": {"sample_from": "a:b"}}
    assert spec("bytes", space).resources.by_config.memory == "bytes"


def test_it_survives_the_way_through_json_and_specs_without_are_written_as_before() -> None:
    asked = spec("1e9 + 4e6 * width")
    assert SweepSpec.from_any(asked.to_dict()) == asked
    assert "by_config" not in asked.replace(resources={"cpu": 1}).to_dict()["resources"]


def test_the_example_is_a_spec() -> None:
    example = Path(__file__).parents[3] / "examples/memory_by_config.yaml"
    found = SweepSpec.from_yaml(example.read_text())
    assert found.resources.by_config.memory == "100000000 + 2000000 * width"
