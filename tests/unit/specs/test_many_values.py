"""A spec of many values: what it costs grows as they do, and it is checked once on the way to a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.sweep_claim import SweepRequest, hold
from raysweep.space.held_tuples import same_in_json
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from tests.growth import LIMIT, calls, exponent

VALUES: dict[str, Callable[[int], Any]] = {
    "int": lambda number: number,
    "float": lambda number: number / 7,
    "dict": lambda number: {"a": number, "b": {"c": number}},
    "list": lambda number: [number, [number]],
    "tuple": lambda number: (number, (number,)),
    "mixed": lambda number: (number, [number], {"a": (number,)}, str(number))[number % 4],
}
FIELDS: dict[str, Callable[[int], dict[str, Any]]] = {
    **{name: lambda n, make=make: {"x": {"choice": [*map(make, range(n))]}} for name, make in VALUES.items()},
    "grid": lambda n: {"x": {"grid_search": [{"a": number} for number in range(n)]}},
    "prior": lambda n: {"x": {"choice": list(range(n)), "prior": [1] * n}},
    "branches": lambda n: {"x": {"choice": {f"b{i}": {"c": {"choice": [1, 2]}} for i in range(n)}}},
    "parameters": lambda n: {f"p{number}": {"uniform": [0, 1]} for number in range(n)},
}


def make(space: dict[str, Any], **fields: Any) -> SweepSpec:
    usual = {"name": "t", "trainable": "a:b", "metric": "loss", "mode": "min", "search": "random"}
    return SweepSpec.model_validate(usual | {"param_space": space} | fields)


@pytest.mark.parametrize("name", FIELDS)
def test_a_spec_costs_what_its_values_cost(name: str) -> None:
    def checked(n: int) -> None:
        spec = make(FIELDS[name](n))
        again = SweepSpec.from_json(spec.to_json())
        assert again.digest() == spec.digest()
        assert again.space.leaves

    assert exponent(checked, 60, 240) < LIMIT


@pytest.mark.parametrize("name", ["points", "configs", "where"])
def test_a_spec_costs_what_its_lists_cost(name: str) -> None:
    def checked(n: int) -> None:
        points = [{"x": number / n} for number in range(n)]
        fields: dict[str, Any] = {
            "points": {"points": points},
            "configs": {"search": {"configs": {"configs": points}}},
            "where": {"where": [f"x >= {number / n - 1}" for number in range(n)]},
        }[name]
        make({"x": {"uniform": [0, 1]}}, num_samples=n, **fields)

    assert exponent(checked, 60, 240) < LIMIT


def test_a_new_sweep_reads_its_stored_spec_once(tmp_path: Path) -> None:
    spec = make({"x": {"grid_search": list(range(20))}}, storage_path=str(tmp_path))
    folder = SweepFolder(open_store(tmp_path), "t-1")
    assert calls(lambda: hold(folder, SweepRequest(spec=spec, key="k", seed=1)), "normalise") == 1


def test_a_place_below_home_is_no_reason_to_check_a_spec_again() -> None:
    spec = make({"x": {"grid_search": list(range(20))}}, storage_path="~/there")
    assert calls(spec.placed, "normalise") == 0
    assert spec.placed() == spec.replace(storage_path=spec.placed().storage_path)
    assert "~" not in spec.placed().storage_path


def test_only_a_tuple_tells_two_values_apart_wherever_they_stand() -> None:
    nan = float("nan")
    assert same_in_json([1, (1, [2]), "a", [1, (2,)]]) == ((1, [2]), [1, (2,)])
    assert same_in_json([{"a": (1,)}, {"b": 0}, {"a": [1.0]}]) == ({"a": (1,)}, {"a": [1.0]})
    assert same_in_json([(1,), (1,), [2], nan, nan, [1, 1], [[1]], {}, ()]) is None
