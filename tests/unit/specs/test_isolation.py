"""`isolation`: a word, or a worker with a limit; both have one form wherever they are written."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.fleet import FleetPolicy
from raysweep.specs import SweepSpec

LONG = {"worker": {"max_trials": 50}}


def sweep(**fields: Any) -> SweepSpec:
    return SweepSpec(name="s", trainable="m:f", metric="auc", mode="max", param_space={"x": 1}, **fields)


def test_a_worker_with_a_limit_is_a_worker() -> None:
    spec = sweep(isolation=LONG)
    assert (spec.effective_isolation, spec.worker_max_trials, spec.is_inline) == ("worker", 50, False)
    policy = FleetPolicy.of(spec)
    assert (policy.isolation, policy.max_trials, policy.can_spare) == ("worker", 50, True)


def test_it_is_read_back_as_it_was_written() -> None:
    spec = sweep(isolation=LONG)
    assert spec.to_dict()["isolation"] == LONG
    again = SweepSpec.from_any(spec.to_dict())
    assert (again, again.digest()) == (spec, spec.digest())
    assert spec.replace(seed=3).worker_max_trials == 50
    assert spec.replace(isolation="process").worker_max_trials is None
    assert spec.digest() != sweep(isolation="worker").digest()


@pytest.mark.parametrize("given", ["worker", {"worker": {}}, {"worker": None}])
def test_without_options_both_forms_are_the_same_spec(given: Any) -> None:
    spec = sweep(isolation=given)
    assert spec.to_dict()["isolation"] == "worker"
    assert spec.worker_max_trials is None
    assert spec.digest() == sweep(isolation="worker").digest()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"worker": {"max_trials": 0}}, "isolation.worker.max_trials: .*0"),
        ({"worker": {"max_trials": "many"}}, "isolation.worker.max_trials: .*many"),
        ({"worker": {"trials": 3}}, "isolation.worker.max_trials: is required"),
        ({"process": {"max_trials": 5}}, "isolation: only worker has options.*max_trials: 50"),
        ({"worker": {"max_trials": 5}, "actor": {}}, "isolation: only worker has options"),
        ({"worker": "x"}, "isolation.worker: .*x"),
        ({}, "isolation: only worker has options"),
        ("wroker", "isolation: .*worker"),
        (50, "isolation: .*50"),
    ],
)
def test_bad_forms_are_refused_in_one_line(given: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text) as caught:
        sweep(isolation=given)
    assert "\n" not in str(caught.value).strip()


def test_tensorflow_gangs_have_no_lasting_workers() -> None:
    with pytest.raises(SpecError, match="isolation"):
        sweep(isolation=LONG, scaling={"backend": "tensorflow"})
