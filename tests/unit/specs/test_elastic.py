"""A number of workers that may change: how it is written, kept, and where it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from raysweep.errors import SpecError
from raysweep.specs import Scaling, SweepSpec, TrainSpec


def train(**scaling: Any) -> TrainSpec:
    return TrainSpec(trainable="math:sqrt", scaling=scaling)


@pytest.mark.parametrize("given", [[2, 8], (2, 8)])
def test_a_range_is_two_numbers_and_survives_every_form(given: Any) -> None:
    spec = train(num_workers=given)
    assert (spec.scaling.min_workers, spec.scaling.max_workers) == (2, 8)
    assert spec == train(num_workers=(2, 8))
    assert TrainSpec.from_json(spec.to_json()) == spec
    assert TrainSpec.from_yaml(spec.to_yaml()) == spec
    assert spec.replace(name="other").scaling == spec.scaling


def test_rays_own_config_is_taken_over() -> None:
    ray_train = pytest.importorskip("ray.train")
    found = Scaling.model_validate(ray_train.ScalingConfig(num_workers=(1, 3)))
    assert (found.min_workers, found.max_workers, found.resize_interval_s) == (1, 3, None)
    asked = ray_train.ScalingConfig(num_workers=(1, 3), elastic_resize_monitor_interval_s=5.0)
    assert Scaling.model_validate(asked).resize_interval_s == 5.0


def test_the_schema_takes_both_forms() -> None:
    schema = Draft202012Validator(TrainSpec.json_schema())
    for given in (3, [2, 8]):
        assert schema.is_valid({"trainable": "math:sqrt", "scaling": {"num_workers": given}})
    assert not schema.is_valid({"trainable": "math:sqrt", "scaling": {"num_workers": [2]}})


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        (
            {"num_workers": [8, 2]},
            r"scaling\.num_workers: \[8, 2\] is not a range; write the smaller number first",
        ),
        ({"num_workers": [1, 2, 3]}, r"scaling\.num_workers: expected a number or two"),
        ({"num_workers": [0, 2]}, r"scaling\.num_workers: must be >= 1"),
        ({"min_workers": 1}, r"scaling\.min_workers: .* did you mean 'scaling\.num_workers: \[2, 8\]'"),
        (
            {"num_workers": 2, "resize_interval_s": 3},
            r"scaling\.resize_interval_s: is of a number",
        ),
    ],
)
def test_what_is_no_range_is_refused_by_its_field(scaling: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        train(**scaling)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scaling": {"num_workers": [1, 2]}}, r"scaling\.num_workers: may not be a range in a sweep"),
        (
            {"scaling": {"num_workers": [1, 2], "driver": {}}},
            r"scaling\.num_workers: may not be a range in a sweep.*own ScalingConfig may have",
        ),
    ],
)
def test_in_a_sweep_a_range_is_refused(fields: dict[str, Any], said: str) -> None:
    plain = {"name": "s", "trainable": "math:sqrt", "param_space": {"x": 1}, "metric": "loss", "mode": "min"}
    with pytest.raises(SpecError, match=said):
        SweepSpec.model_validate(plain | fields)
