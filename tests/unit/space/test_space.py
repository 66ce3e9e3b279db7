# ruff: noqa: E501  (one case a line)
"""The search space's vocabulary: what is read, what is refused, what is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raysweep.errors import SpecError, TrainableImportError
from raysweep.specs import Choice, Const, Float, Grid, Integer, Normal, SampleFrom, Space, SweepSpec


@pytest.fixture
def parsed(fields: dict[str, Any]) -> Callable[[dict[str, Any]], Space]:
    return lambda space: SweepSpec(**{**fields, "param_space": space}).space


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (
            (0, 1),
            'write {"uniform": [0, 1]} for a range, {"choice": [0, 1]} for one of the two, [0, 1] for that list',
        ),
        ((1e-4, 1e-1), 'write {"uniform": [0.0001, 0.1]} for a range'),
        ((8, np.int64(64)), 'write {"randint": [8, 64]} for a range'),
    ],
)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"net": x}, lambda x: [x]])
def test_a_pair_of_numbers_is_no_domain(
    parsed: Callable[[dict[str, Any]], Space], given: Any, fix: str, wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(SpecError, match="neither a range nor a choice") as caught:
        parsed({"x": wrap(given)})
    assert caught.value.field.startswith("param_space.x")
    assert fix in str(caught.value)


@pytest.mark.parametrize("given", [[0, 1], (1, 2, 3), ("a", "b"), {"const": (0, 1)}, {"choice": [(0, 1)]}])
def test_lists_and_what_is_said_to_be_constant_are(
    parsed: Callable[[dict[str, Any]], Space], given: Any
) -> None:
    assert parsed({"x": given}).cardinality == 1


@pytest.mark.parametrize(
    ("written", "domain"),
    [
        ({"uniform": [0, 1]}, Float(lower=0, upper=1)),
        ({"quniform": [0, 1, 0.25]}, Float(lower=0, upper=1, q=0.25)),
        ({"loguniform": [1e-4, 1e-1]}, Float(lower=1e-4, upper=1e-1, log=True)),
        ({"qloguniform": [0.1, 1, 0.1]}, Float(lower=0.1, upper=1, log=True, q=0.1)),
        ({"randn": [1, 2]}, Normal(mean=1, sd=2)),
        ({"randn": []}, Normal(mean=0, sd=1)),
        ({"qrandn": [1, 2, 0.5]}, Normal(mean=1, sd=2, q=0.5)),
        ({"randint": [0, 5]}, Integer(lower=0, upper=5)),
        ({"randint": [0.0, 5.0]}, Integer(lower=0, upper=5)),
        ({"qrandint": [0, 10, 5]}, Integer(lower=0, upper=10, q=5)),
        ({"lograndint": [1, 100]}, Integer(lower=1, upper=100, log=True)),
        ({"qlograndint": [2, 100, 2]}, Integer(lower=2, upper=100, log=True, q=2)),
        ({"choice": [1, "a", None]}, Choice(values=(1, "a", None))),
        ({"choice": (1, 2)}, Choice(values=(1, 2))),
        ({"choice": np.array([1, 2])}, Choice(values=(1, 2))),
        ({"choice": [{"a": 1}, {"const": 2}]}, Choice(values=({"a": 1}, {"const": 2}))),
        ({"grid_search": range(3)}, Grid(values=(0, 1, 2))),
        ({"const": {"uniform": [0, 1]}}, Const(value={"uniform": [0, 1]})),
        ({"uniform": [np.float32(0.5), np.int64(2)]}, Float(lower=0.5, upper=2)),
        ({"sample_from": "math:sqrt"}, SampleFrom(function=__import__("math").sqrt)),
        ([1, 2], Const(value=[1, 2])),
        ({"a": {"b": 1}}, Const(value={"a": {"b": 1}})),
        (np.float64(0.5), Const(value=0.5)),
        ("text", Const(value="text")),
        (None, Const(value=None)),
    ],
)
def test_read(parsed: Callable[[dict[str, Any]], Space], written: Any, domain: Any) -> None:
    assert parsed({"x": written}).leaves == ((("x",), domain),)


@pytest.mark.parametrize(
    ("space", "line"),
    [
        (3, 'param_space: expected a mapping, got 3; write {"lr": {"loguniform": [1e-4, 1e-1]}}'),
        ({"uniform": [0, 1]}, "param_space: 'uniform' is a domain's name and cannot be a parameter's; write {\"my_parameter\": {\"uniform\": ...}}, or rename the parameter"),
        ({1: 2}, "param_space: the key 1 is a int; write it as a string: \"1\""),
        ({"a": {True: 2}}, "param_space.a: the key True is a bool; write it as a string: \"True\""),
        ({"a": {"unifrom": [0, 1]}}, "param_space.a: unknown domain 'unifrom'; did you mean 'uniform'? If it is a constant, write {\"const\": ...}"),
        ({"a": {"choices": [1]}}, "param_space.a: unknown domain 'choices'; did you mean 'choice'? If it is a constant, write {\"const\": ...}"),
        ({"a": {"choice": [1], "b": 2}}, "param_space.a: 'choice' is a domain's name and stands beside other keys; a domain has one key; rename the parameter, or wrap a constant as {\"const\": {...}}"),
        ({"a": {"choice": []}}, "param_space.a.choice: has no values; give at least one"),
        ({"a": {"choice": "abc"}}, "param_space.a.choice: expected a list of values, got 'abc'; write [a, b, c]"),
        ({"a": {"choice": [1, object]}}, "param_space.a.choice[1]: <class 'object'> is a type, which JSON cannot hold; use numbers, strings, booleans, lists and mappings; build objects from them in the trainable"),
        ({"a": {"choice": [float("inf")]}}, "param_space.a.choice[0]: inf cannot be written in JSON; use a finite number or a string"),
        ({"a": {"choice": [2**70]}}, f"param_space.a.choice[0]: {2**70} does not fit in 64 bits; use a smaller number, or a string"),
        ({"a": {"choice": ["\ud800"]}}, "param_space.a.choice[0]: '\\ud800' is not valid Unicode; use valid text"),
        ({"a": {"choice": [{"uniform": [0, 1]}]}}, "param_space.a.choice[0]: a value holds a search domain, which would not be sampled; give it its own parameter, or write branches, each with its own: {\"choice\": {\"a\": {...}}}"),
        ({"a": {"choice": [[{"uniform": [0, 1]}]]}}, "param_space.a.choice[0]: a value holds a search domain, which would not be sampled; give it its own parameter, or write branches, each with its own: {\"choice\": {\"a\": {...}}}"),
        ({"a": {"grid_search": {}}}, "param_space.a.grid_search: has no branches; name one, as {\"svm\": {\"c\": {\"uniform\": [0, 1]}}}"),
        ({"a": {"uniform": [0]}}, "param_space.a.uniform: takes 2 numbers, got [0]; write {\"uniform\": [lower, upper]}"),
        ({"a": {"uniform": 3}}, "param_space.a.uniform: takes 2 numbers, got 3; write {\"uniform\": [lower, upper]}"),
        ({"a": {"uniform": ["1e-4", 1]}}, "param_space.a.uniform: lower must be a number, got '1e-4'; write a number, without quotes"),
        ({"a": {"uniform": [False, 1]}}, "param_space.a.uniform: lower must be a number, got False; write a number, without quotes"),
        ({"a": {"uniform": [float("nan"), 1]}}, "param_space.a.uniform: lower must be finite, got nan; give a finite number"),
        ({"a": {"uniform": [0, float("inf")]}}, "param_space.a.uniform: upper must be finite, got inf; give a finite number"),
        ({"a": {"uniform": [-1.7e308, 1.7e308]}}, "param_space.a.uniform: the range is too wide for a float; narrow the bounds"),
        ({"a": {"uniform": [1, 0]}}, "param_space.a.uniform: lower bound 1 is above upper bound 0; swap them: [0, 1]"),
        ({"a": {"loguniform": [0, 1]}}, "param_space.a.loguniform: lower bound must be > 0 for loguniform, got 0; raise it, or drop the log"),
        ({"a": {"lograndint": [0, 9]}}, "param_space.a.lograndint: lower bound must be >= 1 for lograndint, got 0; raise it, or drop the log"),
        ({"a": {"quniform": [0, 1, 0]}}, "param_space.a.quniform: q must be > 0, got 0; drop the q and write 'uniform', or give a step"),
        ({"a": {"qrandint": [0, 9, -1]}}, "param_space.a.qrandint: q must be > 0, got -1; drop the q and write 'randint', or give a step"),
        ({"a": {"quniform": [0.05, 1, 0.1]}}, "param_space.a.quniform: bound 0.05 is not a multiple of q=0.1; write [0.1, 1.0, 0.1]"),
        ({"a": {"randint": [0, 10**400]}}, "param_space.a.randint: upper is too large: 1000000000000000000000000000000000000000000000000000000000000000000000000000000…; stay below 2**53"),
        ({"a": {"quniform": [0, 1e300, 1e-300]}}, "param_space.a.quniform: q=1e-300 is too small for bounds [0, 1e+300]; make q larger"),
        ({"a": {"qrandint": [1, 4, 5]}}, "param_space.a.qrandint: no multiple of q=5 in [1, 4]; widen the bounds, or make q smaller"),
        ({"a": {"randint": [0, 2.5]}}, "param_space.a.randint: upper must be a whole number, got 2.5; write 2, or use a float domain"),
        ({"a": {"randint": [3, 3]}}, "param_space.a.randint: no whole number in [3, 3), as the upper bound is excluded; write [3, 4]"),
        ({"a": {"qrandint": [3, 3, 1]}}, "param_space.a.qrandint: no whole number in [3, 3), as the upper bound is excluded; write [3, 4]"),
        ({"a": {"randint": [0, 2**60]}}, f"param_space.a.randint: upper is too large: {2**60}; stay below 2**53"),
        ({"a": {"randn": [0, 0]}}, "param_space.a.randn: sd must be > 0, got 0; give a positive standard deviation"),
        ({"a": {"sample_from": 3}}, "param_space.a.sample_from: expected a function, got 3; give a callable, or \"module:name\""),
        ({"a": len}, "param_space.a: <built-in function len> is a function or class, which is not a constant; write {\"sample_from\": f} to draw values with a function, or name it by a string"),
        ({"a": {1, 2}}, "param_space.a: {1, 2} is a set, which JSON cannot hold; use numbers, strings, booleans, lists and mappings; build objects from them in the trainable"),
        ({"a": [1, {"b": {"uniform": [2, 1]}}]}, "param_space.a[1].b.uniform: lower bound 2 is above upper bound 1; swap them: [1, 2]"),
    ],
)  # fmt: skip
def test_refused(refusal: Callable[..., str], space: Any, line: str) -> None:
    assert refusal(param_space=space) == line


@pytest.mark.parametrize(
    "constant", [{"units": [64, 64]}, {"normal": [1, 2, 3]}, {"choicest": 1}, {"uni": []}]
)
def test_constants_that_only_look_a_bit_like_domains(
    parsed: Callable[[dict[str, Any]], Space], constant: dict[str, Any]
) -> None:
    assert parsed({"x": constant}).build({}) == {"x": constant}


def test_nesting_in_mappings_and_lists(parsed: Callable[[dict[str, Any]], Space]) -> None:
    space = parsed(
        {
            "net": {"layers": [{"randint": [1, 4]}, 64, {"width": {"choice": [8, 16]}}], "bias": True},
            "lr": {"uniform": [0, 1]},
        }
    )
    assert [path for path, _ in space.leaves] == [
        ("lr",),
        ("net", "bias"),
        ("net", "layers", "0"),
        ("net", "layers", "1"),
        ("net", "layers", "2", "width"),
    ]
    values = {path: number for number, (path, _) in enumerate(space.searched)}
    assert space.build(values) == {"net": {"layers": [1, 64, {"width": 2}], "bias": True}, "lr": 0}
    with pytest.raises(KeyError):
        space.build({("lr",): 0.5})


def test_cardinality(parsed: Callable[[dict[str, Any]], Space]) -> None:
    finite = parsed({"a": {"grid_search": [1, 2, 3]}, "b": {"qrandint": [0, 10, 5]}, "c": 1})
    assert finite.cardinality == 9
    assert parsed({"a": {"grid_search": [1]}, "b": {"uniform": [0, 1]}}).cardinality is None


def test_the_same_generator_draws_the_same_config(parsed: Callable[[dict[str, Any]], Space]) -> None:
    space = {"a": {"uniform": [0, 1]}, "b": {"choice": [1, 2, 3]}, "c": {"randn": [0, 1]}}
    one, two = parsed(space), parsed(dict(reversed(space.items())))
    assert one.sample(random.Random(7)) == two.sample(random.Random(7))
    assert one.sample(random.Random(7)) != one.sample(random.Random(8))


def test_sample_from_sees_the_config_whatever_the_order(parsed: Callable[[dict[str, Any]], Space]) -> None:
    space = parsed(
        {
            "a": {"sample_from": lambda config: config["z"]["y"] + 1},
            "b": {"choice": [10]},
            "d": [{"sample_from": lambda: "nothing needed"}],
            "z": {"y": {"sample_from": lambda config: config["b"] * 2}},
        }
    )
    assert space.sample(random.Random(0)) == {"a": 21, "b": 10, "d": ["nothing needed"], "z": {"y": 20}}
    assert space.build({("b",): 1, ("z", "y"): 5})["a"] == 6


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda config: config["missing"], r"param_space\.a: sample_from found no 'missing' in the config"),
        (lambda config: 1 / 0, r"param_space\.a: sample_from raised ZeroDivisionError: division by zero"),
        (lambda config: {1}, r"param_space\.a: sample_from returned: \{1\} is a set"),
    ],
)
def test_sample_from_that_fails_is_named(
    parsed: Callable[[dict[str, Any]], Space], function: Callable[[dict[str, Any]], Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        parsed({"a": {"sample_from": function}}).sample(random.Random(0))


def test_sample_from_is_written_as_its_reference(fields: dict[str, Any]) -> None:
    import math

    by_name = SweepSpec(**{**fields, "param_space": {"a": {"sample_from": math.sqrt}}})
    assert by_name.to_dict()["param_space"] == {"a": {"sample_from": "math:sqrt"}}
    assert SweepSpec.from_json(by_name.to_json()).digest() == by_name.digest()
    python_only = SweepSpec(**{**fields, "param_space": {"a": {"sample_from": lambda: 1}}})
    read_back = SweepSpec.from_json(python_only.to_json())
    assert read_back.digest() == python_only.digest()
    with pytest.raises(TrainableImportError, match="pass the callable itself"):
        _ = read_back.space
