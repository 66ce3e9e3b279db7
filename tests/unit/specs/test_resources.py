# ruff: noqa: E501  (one case a line)
"""Resources as one bundle, as several, and in Ray's keys."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.specs import Resources, Scaling


@pytest.mark.parametrize(
    ("given", "bundles"),
    [
        ({}, [{"CPU": 1.0}]),
        ({"cpu": 2, "gpu": 0.5}, [{"CPU": 2.0, "GPU": 0.5}]),
        ({"cpu": 2, "gpu": 1}, [{"CPU": 2.0, "GPU": 1.0}]),
        ({"cpu": 0, "gpu": 1}, [{"GPU": 1.0}]),
        ({"memory": 1e9}, [{"CPU": 1.0, "memory": 1e9}]),
        ({"custom": {"TPU": 4, "none": 0}}, [{"CPU": 1.0, "TPU": 4.0}]),
        ({"bundles": [{"cpu": 1}, {"CPU": 2, "gpu": 1}]}, [{"CPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}]),
        ({"bundles": [{}, {"CPU": 2}]}, [{"CPU": 2.0}]),
        ({"bundles": [{"CPU": 0}, {"CPU": 2}]}, [{"CPU": 2.0}]),
    ],
)
def test_bundles(given: dict[str, Any], bundles: list[dict[str, float]]) -> None:
    resources = Resources.model_validate(given)
    assert [*resources.shape().bundles] == bundles
    assert Resources.model_validate(resources.model_dump(mode="json")) == resources


def test_the_trials_own_amounts_are_those_of_the_first_bundle() -> None:
    resources = Resources.model_validate(
        {"bundles": [{"CPU": 2, "GPU": 0.5, "memory": 5e8, "x": 1}, {"GPU": 2}]}
    )
    assert (resources.cpu, resources.gpu, resources.memory, resources.custom) == (
        2,
        0.5,
        500_000_000,
        {"x": 1},
    )
    assert resources.shape().total["GPU"] == 2.5
    assert not resources.shape().is_head_empty


def test_an_empty_first_bundle_is_a_trial_that_takes_nothing_itself() -> None:
    resources = Resources.model_validate({"bundles": [{}, {"CPU": 2}, {"CPU": 2}]})
    assert resources.shape().is_head_empty
    assert (resources.cpu, resources.gpu) == (0, 0)
    assert [*resources.shape().bundles] == [{"CPU": 2.0}, {"CPU": 2.0}]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"cpu": 0}, 'asks for nothing; give an amount above 0, such as "cpu": 1'),
        ({"resources": {"x": 1}}, "resources: unknown field 'resources'; did you mean 'custom'?"),
        ({"cpu": "1"}, "cpu: expected a number, got '1'; write 1 without quotes"),
        ({"memory": "4GB"}, "memory: expected a whole number, got '4GB'; write a number"),
        ({"memory": 0}, "memory: must be >= 1, got 0; give a number >= 1"),
        ({"custom": {"GPU": 1}}, "custom: 'GPU' is not a custom resource; write 'gpu' outside of custom"),
        ({"custom": {"x": -1}}, "custom.x: must be >= 0, got -1; give a number >= 0"),
        ({"cpu": 0.00005}, "cpu: 5e-05 is not an amount that Ray accepts; make it at least 0.0001, in which Ray counts"),
        ({"gpu": 0.00005}, "gpu: 5e-05 is not an amount that Ray accepts; make it at least 0.0001, in which Ray counts"),
        ({"bundles": []}, "bundles: has no bundle; leave bundles out, or give at least one"),
        ({"bundles": [{}]}, 'bundles: asks for nothing; give a bundle an amount above 0, such as {"CPU": 1}'),
        ({"bundles": [{"CPU": 1}, {}]}, "bundles[1]: is empty; remove it: only the first may be empty"),
        ({"bundles": [{"CPU": 1}, {"CPU": -1}]}, "bundles[1].CPU: must be >= 0, got -1; give a number >= 0"),
        ({"bundles": [{"CPU": "1"}]}, "bundles[0].CPU: expected a number, got '1'; write 1 without quotes"),
        ({"bundles": [3]}, "bundles[0]: expected a mapping, got 3; write a mapping"),
        ({"bundles": {"CPU": 1}}, "bundles: expected a list, got {'CPU': 1}; write a list"),
        ({"cpu": 4, "bundles": [{"CPU": 1}]}, "cpu: 4.0 differs from the first bundle, 1.0; remove cpu: the first bundle has it"),
        ({"strategy": "pack"}, "strategy: 'pack' is not known here; did you mean 'PACK'?"),
    ],
)  # fmt: skip
def test_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        Resources.model_validate(given)
    assert str(caught.value).removeprefix("spec: ") == line


@pytest.mark.parametrize(
    ("given", "bundle"),
    [
        ({}, {"CPU": 1.0}),
        ({"resources": {"cpu": 0, "gpu": 1}}, {"GPU": 1.0}),
        ({"resources": {"gpu": 1}}, {"CPU": 1.0, "GPU": 1.0}),
        ({"resources": {"cpu": 2, "gpu": 0}}, {"CPU": 2.0}),
    ],
)
def test_what_a_worker_takes(given: dict[str, Any], bundle: dict[str, float]) -> None:
    assert Scaling.model_validate(given).worker_bundle() == bundle
