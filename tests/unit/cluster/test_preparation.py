"""What is refused before a sweep begins."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.cluster.preparation import check_new, spec_fault
from raysweep.core.state.sweep import SweepState
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec

MIXED: dict[str, Any] = {"x": {"uniform": [0, 1]}, "c": {"choice": [*range(20), "auto"]}}


def new(where: list[str], space: dict[str, Any]) -> None:
    fields = {"name": "s", "trainable": "m:f", "param_space": space, "metric": "m", "mode": "min"}
    check_new(
        SweepSpec.model_validate(fields | {"where": where, "num_samples": 2, "search": "random"}), 1, 0.0
    )


@pytest.mark.parametrize("word", ["choice", "grid_search"])
def test_relations_that_cannot_be_told_of_a_config_are_refused(word: str) -> None:
    """Trials whose config has the one text among the numbers would fail, each of them."""
    space = {**MIXED, "c": {word: MIXED["c"]["choice"]}}
    with pytest.raises(SpecError, match=r"where: 'c < 30' cannot be computed for .*'auto'.*; relate numbers"):
        new(["c < 30"], space)
    new(['c == "auto" or c < 30'], space)
    new(['c != "auto"', "c < 30"], space)


def test_relations_between_parameters_of_branches_are_tried_too() -> None:
    space = {"kind": {"choice": {"a": {"c": MIXED["c"]}, "b": {"d": {"randint": [0, 9]}}}}}
    with pytest.raises(SpecError, match="cannot be computed"):
        new(["kind.a.c < 30"], space)
    new(["kind.b.d < 30"], space)


@pytest.mark.parametrize(
    ("keys", "field", "fix"),
    [
        (("loss",), "metric", "set metric to a name that the trainable reports"),
        ((), "metric", "call raysweep.report"),
        ((), "constraints", "report it beside the metric"),
    ],
)
def test_the_fix_follows_from_what_was_reported_and_not_from_the_words(
    keys: tuple[str, ...], field: str, fix: str
) -> None:
    fields = {"name": "s", "trainable": "m:f", "param_space": MIXED, "metric": "m", "mode": "min"}
    state = SweepState.create(SweepSpec.model_validate(fields), 0)
    state.reports.keys = keys
    state.end.fault_field = field
    state.end.why = "the trainable returned without reporting anything" if keys else "'m' was never reported"
    assert fix in spec_fault(state).fix


def test_a_problem_of_the_trainable_is_kept_as_it_is() -> None:
    fields = {"name": "s", "trainable": "m:f", "param_space": MIXED, "metric": "m", "mode": "min"}
    state = SweepState.create(SweepSpec.model_validate(fields), 0)
    state.end.fault_field, state.end.why = "trainable", "trainable: is no word to cut off"
    assert spec_fault(state).problem == "trainable: is no word to cut off"
