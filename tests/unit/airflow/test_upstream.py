"""A gate and a training are submitted with the job of the sweep before them, unless they have their own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from raysweep.errors import SpecError
from raysweep.jobs import JobOptions
from raysweep_airflow import ApproveOperator, GateOperator, SweepOperator, TrainOperator, top_k
from raysweep_airflow.work import LEASE_S, Try
from tests.unit.airflow.tasks import Store, Ti

SPEC: dict[str, Any] = {
    "name": "p",
    "trainable": "os:getcwd",
    "metric": "loss",
    "mode": "min",
    "param_space": {"x": {"uniform": [0, 1]}},
}
TRAIN = {"name": "t", "trainable": "os:getcwd"}
JOB = {"working_dir": "project", "env_vars": {"DAY": "{{ ds }}"}, "resume_cancelled": True, "takeover": True}


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    (tmp_path / "project").mkdir()
    dag = DAG("d", schedule=None)
    dag.fileloc = str(tmp_path / "dag.py")
    return dag


def options(dag: DAG, task_id: str) -> JobOptions:
    """How a task's job is submitted, as a worker reads it."""
    operator: Any = dag.get_task(task_id)
    if operator.is_mapped:
        operator = operator.unmap({"outcome": {"trial_id": "1", "config": {}}})
    context = {"ti": Ti(), "task_state_store": Store(), "dag": dag, "ds": "2026-11-28", "params": {}}
    attempt: Any = SimpleNamespace(resumes=False, retries=False)
    return Try(operator, context)._options(attempt)


def test_a_gate_and_a_training_take_the_sweeps_job(dag: DAG, tmp_path: Path) -> None:
    with dag:
        sweep = SweepOperator(task_id="sweep", spec=SPEC, job=JOB)
        gate = GateOperator(task_id="gate", spec=SPEC, outcome=sweep.output)
        approve = ApproveOperator(task_id="approve", outcome=gate.output)
        TrainOperator(task_id="train", spec=TRAIN, outcome=approve.output)
        TrainOperator.partial(task_id="each", spec=TRAIN).expand(outcome=top_k(sweep.output, 3))
    for task_id in ("gate", "train", "each"):
        taken = options(dag, task_id)
        assert taken.working_dir == str(tmp_path / "project")
        assert taken.env_vars["DAY"].get_secret_value() == "2026-11-28"
        assert not taken.resume_cancelled
        assert not taken.takeover
        assert taken.lease_ttl_s == LEASE_S
    assert options(dag, "sweep").takeover


def test_a_job_of_its_own_wins_and_an_empty_one_is_none(dag: DAG) -> None:
    with dag:
        sweep = SweepOperator.partial(task_id="sweep", job=JOB).expand(spec=[SPEC])
        GateOperator.partial(task_id="gate", spec=SPEC).expand(outcome=sweep.output)
        TrainOperator(task_id="own", spec=TRAIN, outcome=sweep.output, job={"py_modules": ["project"]})
        TrainOperator(task_id="none", spec=TRAIN, outcome=sweep.output, job={})
        SweepOperator(task_id="next", spec=SPEC) << sweep
        TrainOperator(task_id="text", spec=TRAIN, outcome="{{ ti.xcom_pull('own') }}") << dag.get_task("own")
    assert options(dag, "gate").working_dir is not None
    assert (options(dag, "own").working_dir, len(options(dag, "own").py_modules)) == (None, 1)
    assert options(dag, "none").working_dir is None
    assert options(dag, "next").working_dir is None, "another sweep is not a step of that night"
    assert len(options(dag, "text").py_modules) == 1


def test_the_nearest_one_is_taken_and_two_that_differ_are_refused(dag: DAG) -> None:
    with dag:

        @task
        def chosen(east: Any, west: Any) -> Any:
            return east

        east = SweepOperator(task_id="east", spec=SPEC, job={"pass_env": ["EAST"]})
        west = SweepOperator(task_id="west", spec=SPEC, job={"pass_env": ["WEST"]})
        gate = GateOperator(task_id="gate", spec=SPEC, outcome=west.output)
        TrainOperator(task_id="near", spec=TRAIN, outcome=gate.output) << east
        top = top_k.partial(k=2).expand(
            outcome=GateOperator.partial(task_id="g", spec=SPEC).expand(outcome=[east.output]).output
        )
        TrainOperator.partial(task_id="mapped", spec=TRAIN).expand(outcome=top)
        TrainOperator(task_id="both", spec=TRAIN, outcome=chosen(east.output, west.output))
        TrainOperator(task_id="alone", spec=TRAIN)
    assert options(dag, "near").pass_env == ["WEST"], "by what it is given, not by what is before it"
    assert options(dag, "mapped").pass_env == ["EAST"]
    assert options(dag, "alone").pass_env == ()
    with pytest.raises(SpecError, match="east and west have different jobs"):
        options(dag, "both")
