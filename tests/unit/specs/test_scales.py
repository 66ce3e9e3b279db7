"""The scales of a sweep: what may be said, what is refused, and how trials are spread."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.space.scales import counts_of
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes

PLAIN: dict[str, Any] = {
    "name": "s",
    "trainable": "m:f",
    "param_space": {"lr": {"loguniform": [1e-4, 1]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 12,
}
TWO = [{"rows": 40000}, {"rows": 20000}]


def spec(**fields: Any) -> SweepSpec:
    return SweepSpec.model_validate(PLAIN | fields)


def test_the_smallest_is_first_and_whole_numbers_are_whole() -> None:
    made = spec(scales=[{"rows": 4e4, "share": 0.5}, {"rows": 80000}, {"rows": 20000}])
    assert made.to_dict()["scales"] == [{"rows": 20000}, {"rows": 40000, "share": 0.5}, {"rows": 80000}]
    assert [type(each["rows"]) for each in made.proxy_scales] == [int, int, int]
    assert made.largest_scale == {"rows": 80000}
    assert SweepSpec.from_json(made.to_json()) == made
    assert SweepSpec.from_yaml(made.to_yaml()).digest() == made.digest()


def test_a_spec_without_scales_is_written_as_before() -> None:
    assert not {"scale", "scales"} & spec().to_dict().keys()
    assert spec(scale={"rows": 1}).digest() != spec().digest()


def test_a_size_is_the_product_of_its_values() -> None:
    made = spec(scales=[{"width": 4, "rows": 100}, {"rows": 500, "width": 1}, {"width": 2, "rows": 100}])
    assert made.proxy_scales == (
        {"width": 2, "rows": 100},
        {"width": 4, "rows": 100},
        {"rows": 500, "width": 1},
    )


@pytest.mark.parametrize(
    ("shares", "count", "expected"),
    [
        ([None, None], 12, (6, 6)),
        ([None, 0.5, None], 12, (3, 6, 3)),
        ([None, None, None], 11, (4, 4, 3)),
        ([0.1, 0.2, 0.7], 10, (1, 2, 7)),
        ([0.25, 0.75], 5, (1, 4)),
    ],
)
def test_trials_are_spread_by_share(shares: list[float | None], count: int, expected: tuple[int]) -> None:
    scales = [
        {"rows": 10.0**place} | ({} if share is None else {"share": share})
        for place, share in enumerate(shares)
    ]
    assert counts_of(scales, count) == expected
    assert sum(expected) == count


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scale": {"lr": 3}}, "scale: 'lr' is a parameter of param_space"),
        ({"scale": {"rows": 0}}, "scale.rows: expected a number > 0, got 0"),
        ({"scale": {"rows": "many"}}, "scale.rows: expected a number > 0, got 'many'"),
        ({"scale": {"rows": float("nan")}}, "scale.rows: expected a number > 0, got nan"),
        ({"scale": 3}, "scale: expected names and sizes, got 3"),
        ({"scale": {"a.b": 3}}, "scale: 'a.b' cannot name a scale"),
        ({"scale": {"proxy": 3}}, "scale: 'proxy' cannot name a scale"),
        ({"scale": {"choice": 3}}, "scale: 'choice' cannot name a scale"),
        ({"scales": {"rows": 3}}, "scales: expected a list, got {'rows': 3}"),
        ({"scales": [{"share": 0.5}]}, "scales[0]: names no scale"),
        ({"scales": [{"rows": 1}, {"lines": 2}]}, "scales[1]: has lines, and the first scale rows"),
        ({"scales": [{"rows": 1}, {"rows": 1.0}]}, "scales[1]: rows=1 is there twice"),
        ({"scales": TWO, "scale": {"rows": 1}}, "scales: cannot be combined with scale"),
        ({"scales": TWO, "num_samples": 1}, "scales: 1 configs leave none for rows=40000"),
        ({"scales": [{"rows": 1, "share": 0.6}, {"rows": 2, "share": 0.6}]}, "the shares are 1.2 in all"),
        ({"scales": [{"rows": 1, "share": 0.3}, {"rows": 2, "share": 0.6}]}, "the shares are 0.9 in all"),
        ({"scales": [{"rows": 1, "share": 1}, {"rows": 2}]}, "the shares are 1 in all, and one scale"),
        (
            {"scales": TWO, "num_samples": None, "stop": {"time_budget_s": 9}},
            "num_samples: null has no parts for several scales",
        ),
        (
            {"scales": TWO, "metric": ["loss", "ms"], "mode": ["min", "min"]},
            "metric: with several scales, trials are compared by one metric",
        ),
        (
            {"scales": TWO, "search": "grid", "param_space": {"a": {"grid_search": [1, 2]}}},
            "search: grid runs all its configs",
        ),
        ({"scales": TWO, "search": {"configs": {"configs": [{"lr": 1}]}}}, "search: configs runs all"),
        (
            {"scales": TWO, "search": "bohb", "scheduler": "hyperband"},
            "search: bohb would compare trials of different scales",
        ),
        ({"scales": TWO, "scheduler": "pbt"}, "scheduler: pbt would compare trials of different scales"),
        ({"scales": TWO, "stop": {"target": 0.1}}, "stop.target: would compare trials of different scales"),
        ({"scales": TWO, "stop": {"plateau": {}}}, "stop.plateau: would compare trials of different scales"),
        (
            {"scales": TWO, "repeat": {"times": 5, "race": True}},
            "repeat.race: would compare configs of different scales",
        ),
        (
            {"scales": TWO, "warm_start": {"nights": 3}, "search": "tpe"},
            "warm_start: anchors would be compared at different scales",
        ),
        (
            {"scale": {"workers": 4}, "scaling": {"num_workers": 2}},
            "scale: workers is 4, and scaling.num_workers 2",
        ),
        (
            {"scale": {"seed": 3}, "repeat": {"times": 2, "seed_param": "seed"}},
            "scale: 'seed' gets the seed of repeats",
        ),
    ],
)
def test_bad_input_is_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        spec(**fields)
    assert str(raised.value).startswith(message) or message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_expressions_know_the_names_of_scales() -> None:
    made = spec(
        scales=TWO,
        where="lr * rows < 10000",
        resources={"cpu": 1, "memory": 1000, "by_config": {"memory": "rows * 1000"}},
    )
    assert made.parameter_paths == ["lr", "rows"]
    with pytest.raises(SpecError, match=r"where\[0\]"):
        spec(scales=TWO, where="lr * lines < 3")


def test_a_command_gets_the_values_of_a_scale() -> None:
    plain = {name: value for name, value in PLAIN.items() if name != "trainable"}
    made = SweepSpec.model_validate(plain | {"command": ["fit", "{rows}", "{lr}"], "scale": {"rows": 10}})
    assert made.parameter_paths == ["lr", "rows"]


def test_other_scales_are_another_sweep_and_more_trials_are_not() -> None:
    old = spec(scales=TWO)
    assert changes(old, spec(scales=[{"rows": 20000}, {"rows": 80000}])).unsafe
    assert not changes(old, spec(scales=TWO, num_samples=24)).unsafe


@pytest.mark.parametrize("where", ["lr * opt < 3", "-opt < 3", "lr + flag < 1", "lr < 2 * fixed"])
def test_a_relation_that_computes_with_text_is_refused(where: str) -> None:
    space = {**PLAIN["param_space"], "opt": {"choice": ["adam", "sgd"]}, "flag": {"choice": [True, False]}}
    with pytest.raises(SpecError, match=r"where.*computes with"):
        spec(param_space={**space, "fixed": "text"}, where=where)
    spec(param_space=space, where='opt == "adam" or lr < 0.1')
