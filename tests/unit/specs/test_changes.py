# ruff: noqa: E501  (one case a line)
"""What differs between two specs, and which of it a sweep may continue with."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings

from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes
from tests.sampling import examples
from tests.unit.specs.strategies import SPECS

SOON, LATER = "2026-11-21T05:00:00Z", "2026-11-21T06:30:00+01:00"


@pytest.mark.parametrize(
    ("old", "new", "safe", "unsafe"),
    [
        ({}, {}, (), ()),
        ({}, {"num_samples": 20}, ("num_samples: 1 -> 20",), ()),
        ({"num_samples": 20}, {"num_samples": 2}, (), ("num_samples: 20 -> 2",)),
        ({"stop": {"deadline": SOON}}, {"stop": {"deadline": LATER}}, ('stop.deadline: "2026-11-21T05:00:00Z" -> "2026-11-21T05:30:00Z"',), ()),
        ({"stop": {"deadline": LATER}}, {"stop": {"deadline": SOON}}, (), ('stop.deadline: "2026-11-21T05:30:00Z" -> "2026-11-21T05:00:00Z"',)),
        ({"stop": {"deadline": LATER}}, {}, ('stop.deadline: "2026-11-21T05:30:00Z" -> null',), ()),
        ({}, {"stop": {"deadline": LATER}}, (), ('stop.deadline: null -> "2026-11-21T05:30:00Z"',)),
        ({"stop": {"time_budget_s": 1}}, {"stop": {"time_budget_s": 2}}, ("stop.time_budget_s: 1.0 -> 2.0",), ()),
        ({"stop": {"time_budget_s": 1}}, {}, ("stop.time_budget_s: 1.0 -> null",), ()),
        ({"stop": {"time_budget_s": 2}}, {"stop": {"time_budget_s": 1}}, (), ("stop.time_budget_s: 2.0 -> 1.0",)),
        ({"max_concurrent_trials": 2}, {"max_concurrent_trials": 2, "autoscaled": True}, ("autoscaled: false -> true",), ()),
        ({}, {"max_concurrent_trials": 2}, ("max_concurrent_trials: null -> 2",), ()),
        ({}, {"failure": {"max_failures": 0}}, ("failure.max_failures: 1 -> 0",), ()),
        ({"tags": {"a": "1", "b": "2"}}, {"tags": {"a": "3"}}, ('tags.a: "1" -> "3"', 'tags.b: "2" -> (absent)'), ()),
        ({}, {"checkpoint": {"upload": "latest", "keep_last": 2}}, ('checkpoint.upload: "block" -> "latest"',), ("checkpoint.keep_last: 1 -> 2",)),
        ({}, {"metric": "loss", "seed": 3}, (), ('metric: "auc" -> "loss"', "seed: null -> 3")),
        ({}, {"param_space": {"lr": {"uniform": [0, 2]}}}, (), ('param_space.lr: {"loguniform": [0.0001, 0.1]} -> {"uniform": [0, 2]}',)),
        ({}, {"param_space": {"lr": {"loguniform": [1e-4, 1e-1]}, "n": {"a": [1, 2]}}}, (), ("param_space.n.a: (absent) -> [1, 2]",)),
        ({}, {"trainable": "other.module:train"}, (), ('trainable: "examples.flights:train" -> "other.module:train"',)),
        ({"trainable": "<python> train#0123456789"}, {"trainable": "<python> train#9876543210"}, (), ()),
        ({"trainable": "<python> train#0123456789"}, {"trainable": "quickstart:train"}, (), ()),
        ({"trainable": "quickstart:train"}, {"trainable": "<python> fit#0123456789"}, (), ('trainable: "quickstart:train" -> "<python> fit#0123456789"',)),
        ({}, {"search": "tpe"}, (), ('search: "random" -> "tpe"',)),
        ({"search": {"tpe": {"multivariate": False}}}, {"search": {"tpe": {"multivariate": True}}}, (), ("search.tpe.multivariate: false -> true",)),
        ({"search": "tpe"}, {"search": {"tpe": {"multivariate": True}}}, (), ()),
        ({"search": "tpe"}, {"search": {"tpe": {"multivariate": False}}}, (), ("search.tpe.multivariate: true -> false",)),
        ({"search": {"tpe": {"multivariate": False}}}, {"search": "tpe"}, (), ("search.tpe.multivariate: false -> true",)),
        ({}, {"scheduler": {"asha": {"max_t": 9}}}, (), ('scheduler: "fifo" -> "asha"',)),
        ({"storage_path": "~/x"}, {"storage_path": os.path.expanduser("~/x")}, (), ()),
        ({"storage_path": "/a"}, {"storage_path": "file:///a"}, (), ()),
        ({"storage_path": "/a"}, {"storage_path": "/b"}, (), ()),
    ],
)  # fmt: skip
def test_changes(
    fields: dict[str, Any],
    old: dict[str, Any],
    new: dict[str, Any],
    safe: tuple[str, ...],
    unsafe: tuple[str, ...],
) -> None:
    found = changes(SweepSpec(**{**fields, **old}), SweepSpec(**{**fields, **new}))
    assert found.safe == safe
    assert found.unsafe == unsafe
    assert bool(found) == bool(safe or unsafe)


def test_long_values_are_cut(spec: SweepSpec) -> None:
    (line,) = changes(spec, spec.replace(metric="m" * 500)).unsafe
    assert len(line) < 160
    assert "\n" not in line


@settings(max_examples=examples(30), deadline=None)
@given(SPECS, SPECS)
def test_no_change_is_overlooked(one: dict[str, Any], two: dict[str, Any]) -> None:
    old, new = SweepSpec(**one), SweepSpec(**two)
    assert not changes(old, old)
    if old.digest() != new.digest():
        assert changes(old, new)
