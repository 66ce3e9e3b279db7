"""`gpu_memory`: an amount, or one that is enforced; both have one form wherever they are written."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.specs import Resources, SweepSpec

GIB = 1024**3


def sweep(gpu_memory: Any) -> SweepSpec:
    resources = {"gpu_memory": gpu_memory}
    return SweepSpec(
        name="s", trainable="m:f", metric="auc", mode="max", param_space={"x": 1}, resources=resources
    )


def test_a_share_that_is_enforced_is_a_share() -> None:
    resources = sweep({"size": "10GiB", "enforce": True}).resources
    assert (resources.gpu_memory_bytes, resources.gpu_limit_bytes) == (10 * GIB, 10 * GIB)
    assert resources.with_gpu_part(0.125).shape().total["GPU"] == 0.125


def test_it_is_read_back_as_it_was_written() -> None:
    spec = sweep({"size": "10GiB", "enforce": True})
    assert spec.to_dict()["resources"]["gpu_memory"] == {"size": 10 * GIB, "enforce": True}
    again = SweepSpec.from_any(spec.to_dict())
    assert (again, again.digest()) == (spec, spec.digest())
    assert spec.digest() != sweep("10GiB").digest()


@pytest.mark.parametrize(
    "given", [10 * GIB, "10GiB", {"size": "10GiB"}, {"size": 10 * GIB, "enforce": False}]
)
def test_without_enforcement_all_forms_are_the_same_spec(given: Any) -> None:
    spec = sweep(given)
    assert spec.to_dict()["resources"]["gpu_memory"] == 10 * GIB
    assert spec.resources.gpu_limit_bytes == 0
    assert spec.digest() == sweep("10GiB").digest()


def test_the_part_of_the_stored_sweep_is_kept_in_both_forms() -> None:
    stored = Resources(gpu_memory="10GiB").with_gpu_part(0.25)
    enforced = Resources.model_validate({"gpu_memory": {"size": "10GiB", "enforce": True}})
    assert enforced.settled_by(stored).gpu_part == 0.25


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"size": 0, "enforce": True}, "resources.gpu_memory.size: .*0"),
        ({"enforce": True}, "resources.gpu_memory.size: is required"),
        ({"size": "10GiB", "enforce": "maybe"}, "resources.gpu_memory.enforce: .*maybe"),
        ({"size": "10GiB", "force": True}, "resources.gpu_memory.force: .*enforce"),
        ("10 apples", "resources.gpu_memory: .*apples"),
        (0, "resources.gpu_memory: .*0"),
    ],
)
def test_bad_forms_are_refused_in_one_line(given: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        sweep(given)
