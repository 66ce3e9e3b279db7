"""A metric that the spec names `eval/acc` may be reported as `{"eval": {"acc": 1}}`."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.state.compiled_spec import reported_names
from raysweep.specs import SweepSpec
from raysweep.worker.rows import with_nested


@pytest.mark.parametrize(
    ("metrics", "found"),
    [
        ({"eval": {"acc": 1}}, {"eval": {"acc": 1}, "eval/acc": 1}),
        ({"eval": {"acc": 1}, "eval/acc": 2}, {"eval": {"acc": 1}, "eval/acc": 2}),
        ({"eval": {"loss": 1}}, {"eval": {"loss": 1}}),
        ({"eval": 3}, {"eval": 3}),
        ({}, {}),
    ],
)
def test_it_is_found_inside_and_what_was_reported_stays(metrics: dict[str, Any], found: Any) -> None:
    assert with_nested(metrics, ("eval/acc",)) == found


def test_names_are_those_that_the_spec_looks_for() -> None:
    spec = SweepSpec.model_validate(
        {
            "name": "t",
            "trainable": "a:b",
            "param_space": {"x": {"uniform": [0, 1]}},
            "metric": ["eval/acc", "eval/ms"],
            "mode": ["max", "min"],
            "scheduler": {"asha": {"time_attr": "at/epoch", "metric": "train/acc", "mode": "max"}},
            "stop": {"trial": {"at/step": 5}},
            "checkpoint": {"keep_best": {"metric": "eval/loss", "mode": "min", "num": 1}},
        }
    )
    wanted = {"eval/acc", "eval/ms", "train/acc", "at/epoch", "at/step", "eval/loss"}
    assert {name for name in reported_names(spec) if "/" in name} == wanted
