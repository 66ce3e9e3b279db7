"""Frameworks, data sets, limits and failure policies of a TrainSpec."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.storage.objects.opening import open_store
from raysweep.training.from_outcome import train_spec_with
from tests.begun_trainings import begin_training


def make(**fields: Any) -> TrainSpec:
    return TrainSpec(trainable="a.b:c", **fields)


def test_empty_parts_do_not_change_the_digest() -> None:
    assert make(stop={}, failure={}, datasets={}).digest() == make().digest()


def test_they_are_the_same_in_json_yaml_and_python() -> None:
    spec = make(
        framework="pkg.mod:Trainer",
        datasets={
            "train": {"files": "s3://b/x/", "format": "csv"},
            "valid": {"function": "m:f", "split": False},
        },
        stop={"deadline": "6:00 Europe/Berlin", "time_budget_s": 60, "grace_s": 5},
        failure={"max_worker_deaths": 2, "max_preemptions": 0},
    )
    assert TrainSpec.from_yaml(spec.to_yaml()) == TrainSpec.from_any(spec.to_dict()) == spec
    assert spec.to_dict()["datasets"] == {
        "train": {"files": "s3://b/x", "format": "csv", "split": True},
        "valid": {"function": "m:f", "split": False},
    }


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"framework": "xgbost"}, "framework: 'xgbost' is not known here; did you mean 'xgboost'"),
        ({"framework": "horovod"}, "use one of 'data_parallel'"),
        (
            {"framework": "a b:c"},
            "framework: 'a b:c' is not an import path; write \"package.module:MyTrainer\"",
        ),
        ({"datasets": {"t": {}}}, "datasets.t: does not say what is read"),
        ({"datasets": {"t": {"files": "/x", "function": "m:f"}}}, "datasets.t: has a function, and files"),
        ({"datasets": {"t": {"files": "/x", "format": "parqet"}}}, "did you mean 'parquet'"),
        ({"datasets": {"t": {"files": "/x", "format": "orc"}}}, "use one of 'parquet', 'csv'"),
        ({"datasets": {"t": {"function": "no"}}}, "datasets.t.function: 'no' names no module"),
        ({"stop": {"grace_s": 0}}, "stop.grace_s: must be > 0"),
        ({"stop": {"deadline": "25:00 UTC"}}, "stop.deadline"),
        ({"stop": {"time_total_s": 5}}, "did you mean 'time_budget_s'"),
        ({"failure": {"max_worker_deaths": -1}}, "failure.max_worker_deaths: must be >= 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError) as found:
        make(**fields)
    assert says in str(found.value)


def test_limits_and_policies_may_change_while_a_run_has_not_ended_and_data_sets_may_not() -> None:
    folder = RunFolder(open_store("memory://trainings"), "r")
    begin_training(folder, make(stop={"time_budget_s": 5}), "k")
    folder.check_spec(make(stop={"time_budget_s": 50}, failure={"max_worker_deaths": 9, "max_failures": 7}))
    with pytest.raises(SpecError, match=r"datasets\.train"):
        folder.check_spec(make(datasets={"train": "m:f"}))
    with pytest.raises(SpecError, match="framework"):
        folder.check_spec(make(framework="torch"))


def test_functions_stay_functions_when_a_config_is_handed_over() -> None:
    def rows(config: dict[str, Any]) -> None: ...

    given = train_spec_with(make(datasets={"train": rows}), {"lr": 0.1})
    assert given.datasets["train"].function is rows
    assert given.config == {"lr": 0.1}
