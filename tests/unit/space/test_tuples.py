"""Tuples in a space: the trainable gets what the user wrote, and what is stored is JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raysweep.core.state.sweep import SweepState
from raysweep.documents.tuples import with_tuples
from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome
from raysweep.space.held_tuples import tuples_of
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.changes import changes
from raysweep.step.brief import best_config, brief

SPACE = {
    "shape": {"choice": [(1, 1), [1, 2], "auto", {"deep": (3, [4, (5,)])}]},
    "kernel": ("a", "b", "c"),
    "mixed": [{"const": (0, 1)}, {"uniform": [0, 1]}],
}


def make(space: dict[str, Any], **fields: Any) -> SweepSpec:
    plain = {"name": "t", "trainable": "a:b", "param_space": space, "metric": "loss", "mode": "min"}
    return SweepSpec.model_validate(plain | fields)


def spec(**fields: Any) -> SweepSpec:
    space = {**SPACE, "net": {"choice": {"small": {"size": {"choice": [(1,), (2,)]}}, "none": {"x": 1}}}}
    return make(space, **fields)


def test_a_spec_keeps_its_tuples_through_json_and_yaml() -> None:
    made = spec()
    assert SweepSpec.from_json(made.to_json()) == made
    assert SweepSpec.from_yaml(made.to_yaml()) == made
    assert made.to_dict()["param_space"]["shape"]["choice"][0] == {"tuple": [1, 1]}
    assert made.param_space["shape"]["choice"][3] == {"deep": (3, [4, (5,)])}
    assert made.replace(num_samples=2).param_space == made.param_space


def test_a_tuple_in_yaml_is_the_one_in_python() -> None:
    text = "name: t\ntrainable: a:b\nmetric: loss\nmode: min\nparam_space: {n: {choice: [{tuple: [1, 2]}]}}"
    assert SweepSpec.from_yaml(text) == make({"n": {"choice": [(1, 2)]}})


def test_what_is_searched_and_stored_is_json() -> None:
    space = spec().space
    domains = dict(space.leaves)
    assert domains["shape",].values == ([1, 1], [1, 2], "auto", {"deep": [3, [4, [5]]]})  # type: ignore[attr-defined]
    assert domains["kernel",].value == ["a", "b", "c"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        ({"shape": [1, 1]}, {"shape": (1, 1)}),
        ({"shape": [1, 2]}, {"shape": [1, 2]}),
        ({"shape": {"deep": [3, [4, [5]]]}}, {"shape": {"deep": (3, [4, (5,)])}}),
        ({"kernel": ["a", "b", "c"]}, {"kernel": ("a", "b", "c")}),
        ({"kernel": ["other"]}, {"kernel": ["other"]}),
        ({"net": {"small": {"size": [2]}}}, {"net": {"small": {"size": (2,)}}}),
        ({"net": {"none": {"x": 1}}}, {"net": {"none": {"x": 1}}}),
        ({"mixed": [[0, 1], 0.5]}, {"mixed": [(0, 1), 0.5]}),
    ],
)
def test_a_stored_config_becomes_the_one_that_was_written(stored: dict[str, Any], given: Any) -> None:
    before = json.dumps(stored)
    assert with_tuples(stored, json.loads(json.dumps(tuples_of(spec().param_space)))) == given
    assert json.dumps(stored) == before


def test_a_function_gets_tuples_too() -> None:
    made = make({"shape": {"choice": [(1, 2)]}, "sum": {"sample_from": lambda config: hash(config["shape"])}})
    assert made.space.build({("shape",): [1, 2]}) == {"shape": [1, 2], "sum": hash((1, 2))}


def test_two_values_that_only_a_tuple_tells_apart_are_refused() -> None:
    with pytest.raises(
        SpecError, match=r"param_space\.x\.choice: \(1, 2\) and \[1, 2\] are the same in JSON"
    ):
        make({"x": {"choice": [(1, 2), [1, 2]]}})


def test_a_sweep_of_an_earlier_version_goes_on_with_tuples() -> None:
    old, new = (
        make({"x": {"choice": [[1, 2]]}, "y": [1, 2, 3]}),
        make({"x": {"choice": [(1, 2)]}, "y": (1, 2, 3)}),
    )
    assert not changes(old, new)
    assert changes(old, make({"x": {"choice": [(1, 3)]}, "y": [1, 2, 3]})).unsafe


def outcome() -> SweepOutcome:
    trial = {"trial_id": "00000", "number": 0, "state": "completed", "config": {"x": [1, 2]}, "score": 1.0}
    fields = {"sweep_id": "t-1", "name": "t", "status": "completed", "metric": "loss", "mode": "min"}
    fields |= {"started_at": 1.0, "ended_at": 2.0, "best": trial, "trials": [trial]}
    return SweepOutcome.model_validate(
        fields | {"tuples": tuples_of(make({"x": {"choice": [(1, 2)]}}).param_space)}
    )


def test_an_outcome_has_tuples_in_python_and_lists_in_json() -> None:
    found = outcome()
    for each in (found, SweepOutcome.from_json(found.to_json())):
        assert each.best is not None
        assert each.best.config == each.trials[0].config == {"x": (1, 2)}
    assert json.loads(found.to_json())["best"]["config"] == {"x": [1, 2]}


def test_a_training_gets_the_tuples_of_the_trial_that_it_trains() -> None:
    handed_on = json.loads(json.dumps(brief(outcome(), top_k=1)))
    assert best_config(handed_on) == {"x": (1, 2)}
    assert best_config(handed_on["top_k"][0]) == {"x": (1, 2)}
    training = TrainSpec(trainable="a:b", config=best_config(handed_on))
    assert TrainSpec.from_json(training.to_json()).config == {"x": (1, 2)}


def test_the_core_has_lists() -> None:
    state = SweepState.create(spec(), 1)
    assert state.spec.space.tuples == tuples_of(spec().param_space)
