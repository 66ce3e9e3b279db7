"""Data of other tasks in a mapped task: nothing in it is a template, whichever way it is handed over."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task, task_group

from raysweep.errors import SpecError
from raysweep_airflow import ApproveOperator, GateOperator, SweepOperator, TrainOperator, top_k
from raysweep_airflow.work import Try

EVIL = "{{ conn.warehouse.password }}"
SPEC: dict[str, Any] = {
    "name": "p",
    "trainable": "os:getcwd",
    "metric": "loss",
    "mode": "min",
    "param_space": {"x": {"uniform": [0, 1]}, "prompt": {"choice": [EVIL, "Q: {{ ds }}"]}},
}
OWN = {**SPEC, "name": "p-{{ ds }}", "param_space": {"x": 1}}
FOUND = {"trial_id": "00001", "config": {"prompt": "Q: {{ ds }}", "deep": [{"a": EVIL}]}}
JOB = {"env_vars": {"A": "{{ ds }}"}, "metadata": {"note": EVIL}}


class Ti:
    """A task instance whose XComs are here; Airflow's are behind its API server."""

    dag_id, run_id, try_number, max_tries, task_id = "d", "r", 1, 0, "x"

    def __init__(self, returned: dict[str, Any], map_index: int) -> None:
        self.returned, self.map_index = returned, map_index

    def xcom_pull(self, task_ids: str, **kwargs: Any) -> Any:
        return self.returned[task_ids]


class Case:
    """A DAG whose task `made` has returned something; other tasks are mapped over it."""

    def __init__(self, returned: Any) -> None:
        self.returned = {"made": returned}
        self.dag = DAG("d", schedule=None)
        self.dag.fileloc = __file__
        with self.dag:

            @task
            def made() -> Any:
                """Its result is in `returned`."""

            self.made = made()

    def rendered(self, task_id: str = "x", map_index: int = 0) -> tuple[Any, dict[str, Any]]:
        """The task as a worker has it before it runs, and its context."""
        operator = self.dag.get_task(task_id)
        connection = SimpleNamespace(password="s3cr3t")
        context: Any = {
            "ti": Ti(self.returned, map_index),
            "task": operator,
            "dag": self.dag,
            "conn": SimpleNamespace(warehouse=connection),
            "params": {},
            "ds": "2026-11-28",
            "dag_run": SimpleNamespace(conf={}),
        }
        operator.render_template_fields(context)
        return context["task"], context


def options(operator: Any, context: Any) -> Any:
    """How its job is submitted."""
    attempt: Any = SimpleNamespace(resumes=False, retries=False)
    return Try(operator, context)._options(attempt)


def test_a_row_of_another_task_is_no_template() -> None:
    case = Case([SPEC])
    with case.dag:
        SweepOperator.partial(task_id="x").expand(spec=case.made)
    assert case.rendered()[0].spec == SPEC


def test_a_row_that_was_mapped_zipped_or_grouped_is_none() -> None:
    case = Case([SPEC])
    with case.dag:
        SweepOperator.partial(task_id="x").expand(spec=case.made.map(lambda each: dict(each)))
        SweepOperator.partial(task_id="y").expand(spec=case.made.concat(case.made))

        @task_group
        def each_of(spec: Any) -> None:
            SweepOperator(task_id="z", spec=spec)

        each_of.expand(spec=case.made)
    for task_id in ("x", "y", "each_of.z"):
        assert case.rendered(task_id)[0].spec == SPEC


@pytest.mark.parametrize("native", [False, True])
def test_what_expand_kwargs_brings_is_none_and_what_the_author_wrote_beside_it_is_one(native: bool) -> None:
    case = Case([{"spec": SPEC, "job": JOB}])
    case.dag.render_template_as_native_obj = native
    with case.dag:
        SweepOperator.partial(task_id="x").expand_kwargs(case.made)
        TrainOperator.partial(task_id="y", spec={"name": "t-{{ ds }}", "trainable": "m:f"}).expand_kwargs(
            [{"outcome": case.made, "deadline": "{{ ds }}"}]
        )
    operator, context = case.rendered()
    assert operator.spec == SPEC
    assert options(operator, context).metadata["note"] == EVIL
    assert options(operator, context).env_vars["A"].get_secret_value() == "{{ ds }}"
    train, _ = case.rendered("y")
    assert train.spec["name"] == "t-2026-11-28"
    assert (train.outcome, train.deadline) == ([{"spec": SPEC, "job": JOB}], "2026-11-28")


def test_a_job_of_another_task_is_none_and_one_of_the_author_is() -> None:
    case = Case([JOB])
    with case.dag:
        SweepOperator.partial(task_id="x", spec=OWN).expand(job=case.made)
        SweepOperator.partial(task_id="y", spec=OWN).expand(job=[JOB])
        SweepOperator.partial(task_id="z", job={"metadata": {"d": "{{ ds }}"}}).expand(spec=[OWN])
        SweepOperator(task_id="alone", spec=OWN, job={"metadata": {"rows": case.made, "d": "{{ ds }}"}})
    operator, context = case.rendered()
    assert operator.spec["name"] == "p-2026-11-28"
    assert options(operator, context).metadata["note"] == EVIL
    operator, context = case.rendered("y")
    assert options(operator, context).metadata["note"] == "s3cr3t"
    assert options(operator, context).env_vars["A"].get_secret_value() == "2026-11-28"
    operator, context = case.rendered("z")
    assert (operator.spec["name"], options(operator, context).metadata["d"]) == ("p-2026-11-28", "2026-11-28")
    case.returned["made"] = EVIL
    operator, context = case.rendered("alone")
    assert options(operator, context).metadata == {
        **Try(operator, context).task.metadata(),
        "rows": EVIL,
        "d": "2026-11-28",
    }


def test_the_best_trials_are_trained_with_the_texts_that_were_found() -> None:
    case = Case(None)
    with case.dag:
        found = top_k(case.made)
        TrainOperator.partial(task_id="x", spec={"name": "t-{{ ds }}", "trainable": "m:f"}).expand(
            outcome=found
        )
    case.returned["top_k"] = [FOUND]
    operator, _ = case.rendered()
    assert (operator.outcome, operator.spec["name"]) == (FOUND, "t-2026-11-28")


@pytest.mark.parametrize("operator_class", [GateOperator, ApproveOperator])
def test_a_gate_and_an_approval_leave_it_alone_too(operator_class: Any) -> None:
    case = Case([{"outcome": FOUND}])
    own = {"spec": OWN} if operator_class is GateOperator else {"registry": {"mlflow": {"name": "{{ ds }}"}}}
    with case.dag:
        operator_class.partial(task_id="x", **own).expand_kwargs(case.made)
    operator, _ = case.rendered()
    assert operator.outcome == FOUND
    assert "{{" not in str(getattr(operator, next(iter(own))))


def test_values_that_airflow_names_are_left_alone_however_deep() -> None:
    inner = {"note": EVIL}
    with DAG("d", schedule=None) as dag:
        operator = SweepOperator(task_id="x", spec={**OWN, "tags": inner})
    context: Any = {"ds": "2026-11-28", "ti": Ti({}, -1), "dag": dag}
    operator._do_render_template_fields(operator, ("spec",), context, dag.get_template_env(), {id(inner)})
    assert (operator.spec["name"], operator.spec["tags"]) == ("p-2026-11-28", inner)


def test_a_path_from_another_task_leads_to_a_file_of_the_author(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    for name in ("night.yaml", "dags/night.yaml"):
        (tmp_path / name).write_text("name: p-{{ ds }}\n")
    (tmp_path / "dags" / "link.yaml").symlink_to(tmp_path / "night.yaml")
    case = Case(["night.yaml", "../night.yaml", str(tmp_path / "night.yaml"), "link.yaml"])
    case.dag.fileloc = str(tmp_path / "dags" / "dag.py")
    with case.dag:
        SweepOperator.partial(task_id="x").expand(spec=case.made)
        SweepOperator(task_id="y", spec=str(tmp_path / "night.yaml"))
    operator, context = case.rendered()
    assert operator.read_spec(context) == {"name": "p-2026-11-28"}
    for map_index in (1, 2, 3):
        operator, context = case.rendered(map_index=map_index)
        with pytest.raises(SpecError, match=r"night\.yaml' came from another task|link\.yaml' came from"):
            operator.read_spec(context)
    operator, context = case.rendered("y")
    assert operator.read_spec(context) == {"name": "p-2026-11-28"}


def test_a_decorated_function_is_not_mapped_over_configs() -> None:
    """Its arguments are the trial's config: data of another task have no way in."""
    case = Case([{"x": EVIL}])
    with case.dag:

        @task.sweep(spec={"param_space": {"x": 1}, "metric": "loss", "mode": "min"})
        def fit(config: dict[str, Any]) -> dict[str, float]:
            return {"loss": config["x"]}

        fit.expand(config=case.made)
    with pytest.raises(SpecError, match="called with arguments"):
        case.rendered("fit")
