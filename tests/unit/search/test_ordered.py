"""Choices between numbers in order are places to `auto`, and values to everybody else."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from raysweep.search import make_searcher
from raysweep.search.auto import AutoOptions
from raysweep.search.base import Result
from raysweep.search.machinery.ordinal import Ordered
from raysweep.search.machinery.stalled import RelievedModel
from raysweep.search.models.auto import AutoModel
from raysweep.search.models.tpe import TpeModel
from raysweep.space.domains import Choice, Integer
from raysweep.specs import SweepSpec

BATCH = [8, 16, 64, 128, 256, 512]


def spec_of(space: dict[str, Any], samples: int = 40, **more: Any) -> SweepSpec:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "mode": "min", "seed": 3}
    return SweepSpec(**fields, param_space=space, num_samples=samples, search="auto", **more)


@pytest.mark.parametrize(
    ("values", "is_ordered"),
    [
        (BATCH, True),
        ([0.1, 1, 10.5], True),
        ([3, 2, -1], True),
        ([0, 1], True),
        ([1, 3, 2], False),
        ([1, 1, 2], False),
        ([1, 2, "3"], False),
        ([False, True], False),
        ([1, 2, None], False),
        (["a", "b"], False),
        ([[1], [2]], False),
        ([7], False),
    ],
)
def test_what_is_in_order(values: list[Any], is_ordered: bool) -> None:
    ordered = Ordered(spec_of({"c": {"choice": values}, "x": {"uniform": [0, 1]}}).space)
    ((_, domain), _) = ordered.space.searched
    assert isinstance(domain, Integer if is_ordered else Choice)
    for value in values:
        there = ordered.to_places({("c",): value, ("x",): 0.5})
        assert there == {("c",): values.index(value) if is_ordered else value, ("x",): 0.5}
        assert ordered.to_values(there) == {("c",): value, ("x",): 0.5}


def test_a_value_that_is_no_choice_is_refused() -> None:
    ordered = Ordered(spec_of({"c": {"choice": BATCH}}).space)
    with pytest.raises(ValueError, match="9 is none of the 6 choices"):
        ordered.to_places({("c",): 9})


def auto(space: dict[str, Any]) -> Any:
    return AutoModel(spec_of(space).space, 40, 3, "min", AutoOptions())


def test_numbers_in_order_are_numbers_to_auto() -> None:
    numbers = {"batch": {"choice": BATCH}, "lr": {"loguniform": [1e-4, 1]}}
    assert isinstance(auto(numbers)._first, RelievedModel)
    assert isinstance(auto(numbers | {"kind": {"choice": ["a", "b"]}})._first, TpeModel)


def test_earlier_results_and_samples_are_of_the_choices() -> None:
    model = auto({"batch": {"choice": BATCH}, "kind": {"choice": ["a", "b"]}})
    model.add_earlier({("batch",): 64, ("kind",): "a"}, Result(1.0))
    model.add(0, {("batch",): 512, ("kind",): "b"})
    model.end(0, Result(0.5))
    for number in range(1, 30):
        sample = model.sample(number, 0)
        assert sample["batch",] in BATCH
        assert sample["kind",] in ("a", "b")
    with pytest.raises(ValueError, match="none of the 6 choices"):
        model.add(1, {("batch",): 65, ("kind",): "b"})


def test_in_branches_too() -> None:
    branches = {"a": {"depth": {"choice": [2, 4, 8]}}, "b": {"width": {"uniform": [0, 1]}}}
    searcher = make_searcher(spec_of({"model": {"choice": branches}}), 3)
    seen = set()
    for number in range(40):
        config = searcher.ask(number)
        assert config is not None
        ((branch, inner),) = config["model"].items()
        assert inner.keys() == ({"depth"} if branch == "a" else {"width"})
        seen.add(inner.get("depth"))
        searcher.tell(number, float(inner.get("depth", 3)), "completed")
    assert seen == {None, 2, 4, 8}


def test_what_is_near_to_the_best_is_tried_more_than_what_is_far() -> None:
    """Among a hundred places: as categories each would have to be tried."""
    values = [round(1.1**power, 4) for power in range(100)]
    searcher = make_searcher(spec_of({"c": {"choice": values}, "x": {"uniform": [0, 1]}}), 3)
    distances = []
    for number in range(24):
        config = searcher.ask(number)
        assert config is not None
        distances.append(abs(values.index(config["c"]) - 71))
        searcher.tell(number, distances[-1] + config["x"], "completed")
    assert median(distances[:10]) > 15
    assert median(distances[14:]) < 8
