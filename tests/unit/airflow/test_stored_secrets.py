"""What Airflow stores of a DAG shows no value of `env_vars`, however given; and the job gets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow.serialization.serialized_objects import DagSerialization
from pydantic import SecretStr

from raysweep.jobs import JobOptions
from raysweep_airflow import GateOperator, SweepOperator, TrainOperator
from raysweep_airflow.base import without_literals

JOB = {
    "env_vars": {"KEY": "hunter22", "SAFE": SecretStr("hunter33"), "ASKED": "{{ conn.c.password }}"},
    "excludes": ["x"],
}


def options(operator: Any, **found: str) -> dict[str, str]:
    """The environment that a job gets, its templates rendered as Airflow does it."""
    rendered = operator.render_template(dict(operator.job), {"conn": _Connections()})
    made = JobOptions.model_validate(rendered)
    assert tuple(made.excludes) == ("x",)
    return {name: value.get_secret_value() for name, value in made.secrets().items()}


class _Connections:
    class c:
        password = "hunter44"


WHOLE = {"KEY": "hunter22", "SAFE": "hunter33", "ASKED": "hunter44"}


def unmapped(made: Any) -> Any:
    """The operator that runs."""
    if not made.is_mapped:
        return made
    return made.unmap({name: {} for name in made._get_specified_expand_input().value})


def plainly(dag: DAG) -> Any:
    return SweepOperator(task_id="t", spec="t.yaml", job=JOB, dag=dag)


def mapped(dag: DAG) -> Any:
    return SweepOperator.partial(task_id="t", job=JOB, dag=dag).expand(spec=[{}, {}])


def mapped_gate(dag: DAG) -> Any:
    return GateOperator.partial(task_id="t", spec="t.yaml", job=JOB, dag=dag).expand(outcome=[{}, {}])


def mapped_training(dag: DAG) -> Any:
    return TrainOperator.partial(task_id="t", spec={}, job=JOB, dag=dag).expand(outcome=[{}, {}])


WAYS: dict[str, Callable[[DAG], Any]] = {
    "plainly": plainly,
    "mapped": mapped,
    "a mapped gate": mapped_gate,
    "a mapped training": mapped_training,
}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_what_a_task_is_given_is_not_stored(make: Callable[[DAG], Any]) -> None:
    with DAG("d", schedule=None) as dag:
        made = make(dag)
    # First of all: to make a task of a mapped one hides things too.
    stored = json.dumps(DagSerialization.to_dict(dag), default=str)
    assert "hunter" not in stored
    assert options(unmapped(made)) == WHOLE


@pytest.mark.parametrize("is_mapped", [False, True])
def test_what_a_dag_gives_to_all_is_not_stored(is_mapped: bool) -> None:
    with DAG("d", schedule=None, default_args={"job": JOB, "retries": 3}) as dag:
        if is_mapped:
            made: Any = SweepOperator.partial(task_id="t").expand(spec=[{}])
        else:
            made = SweepOperator(task_id="t", spec="t.yaml")
    stored = json.dumps(DagSerialization.to_dict(dag), default=str)
    assert "hunter" not in stored
    assert '"retries"' in stored
    assert options(unmapped(made)) == WHOLE
    assert JOB["env_vars"]["KEY"] == "hunter22", "what the author holds is as it was"  # type: ignore[index]


def test_what_the_decorator_is_given_is_not_stored() -> None:
    spec = {"param_space": {"x": {"uniform": [0, 1]}}, "metric": "loss", "mode": "min"}
    with DAG("d", schedule=None) as dag:

        @task.sweep(spec=spec, job=JOB)
        def fit(config):  # type: ignore[no-untyped-def]
            return {"loss": 0.0}

        made = fit()
    assert "hunter" not in json.dumps(DagSerialization.to_dict(dag), default=str)
    assert options(made.operator) == WHOLE


def test_other_ways_to_say_it_are_left_alone() -> None:
    for given in (None, {}, {"env_vars": None}, {"env_vars": ["x"]}, JobOptions(env_vars={"A": "hunter22"})):
        assert without_literals(given) == given
