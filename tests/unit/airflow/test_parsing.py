"""Bad specs fail when the DAG is parsed, as far as they can be read then; nothing else breaks a DAG."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

import raysweep_airflow.parsing as room
from raysweep.errors import SpecError
from raysweep_airflow import GateOperator, SweepOperator, TrainOperator
from raysweep_airflow.decorators import sweep_task as sweep

SPEC: dict[str, Any] = {
    "name": "flights",
    "trainable": "a_module_of_the_worker:train",
    "metric": "loss",
    "mode": "min",
    "param_space": {"x": {"uniform": [0, 1]}},
}
YAML = "name: flights\ntrainable: m:f\nmetric: loss\nmode: min\nparam_space: {x: {uniform: [0, 1]}}\n"


def parse(tmp_path: Path, make: Any) -> Any:
    dag = DAG("d", schedule=None)
    dag.fileloc = str(tmp_path / "dag.py")
    with dag:
        return make()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_samples": 0}, r"night\.spec\.num_samples"),
        ({"mode": "mni"}, r"night\.spec\.mode.*min"),
        ({"num_smples": 3}, r"night\.spec\.num_smples.*did you mean 'num_samples'"),
        ({"stop": {"deadline": "06:00 Europe/Berlni"}}, r"night\.spec\.stop\.deadline"),
        ({"param_space": {"x": {"uniform": [1, 0]}}}, r"night\.spec\.param_space\.x\.uniform"),
        # Beside a template, what has none is read by itself.
        ({"num_samples": "{{ params.n }}", "mode": "mni"}, r"night\.spec\.mode"),
        ({"name": "a-{{ ds }}", "param_space": {"x": {"uniform": [1, 0]}}}, r"param_space\.x\.uniform"),
    ],
)
def test_a_bad_mapping_fails_and_names_task_and_field(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SpecError, match=problem):
        parse(tmp_path, lambda: SweepOperator(task_id="night", spec=SPEC | changes))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    for missing in ("name", "param_space"):
        spec = {name: value for name, value in SPEC.items() if name != missing}
        for more in ({}, {"num_samples": "{{ params.n }}"}):
            with pytest.raises(SpecError, match=rf"night\.spec\.{missing}: is required"):
                parse(tmp_path, lambda spec=spec | more: SweepOperator(task_id="night", spec=spec))
    spec = {name: value for name, value in SPEC.items() if name != "metric"}
    with pytest.raises(SpecError, match=r"night\.spec\.metric: is required with mode"):
        parse(tmp_path, lambda: SweepOperator(task_id="night", spec=spec))


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("a.yaml", YAML + "num_samples: many\n", r"night\.spec\.num_samples"),
        ("a.yaml", YAML + "num_samples: {{ params.n }}\nmode: mni\n", None),
        ("a.yaml", YAML + "name: other\n", "name"),
        ("a.json", "[1]", "not a mapping"),
        ("a.json", "{", r"night\.spec"),
        ("a.yaml", YAML, None),
        ("b.yaml", "", None),
    ],
)
def test_a_file_is_read_where_it_is_there_and_holds_no_template(
    tmp_path: Path, file: str, text: str, problem: str | None
) -> None:
    if text:
        (tmp_path / file).write_text(text)
    make = lambda: SweepOperator(task_id="night", spec=file)  # noqa: E731
    if problem is None:
        parse(tmp_path, make)
        return
    with pytest.raises(SpecError, match=problem):
        parse(tmp_path, make)


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        SPEC | {"num_samples": "{{ params.n }}"},
        {name: "{{ params." + name + " }}" for name in SPEC},
        SPEC | {"param_space": {"x": {"loguniform": ["{{ params.low }}", "{{ params.high }}"]}}},
        SPEC | {"param_space": "{{ params.space }}"},
        SPEC | {"stop": {"time_budget_s": "{{ params.s }}", "plateau": None}},
        SPEC | {"scheduler": "a_module_of_the_worker:Scheduler"},
        SPEC | {"search": "a_module_of_the_worker:Search"},
        SPEC | {"stop": {"plateau": {"patience": "{{ params.p }}"}}},
        SPEC | {"scheduler": {"asha": {"max_t": "{{ params.t }}"}}},
        "{{ dag_run.conf['spec'] }}",
        "specs/{{ params.which }}.yaml",
        "nowhere.yaml",
        YAML + "num_samples: {{ params.n }}\n",
    ],
)
def test_what_only_the_worker_knows_breaks_no_dag(tmp_path: Path, spec: Any) -> None:
    parse(tmp_path, lambda: SweepOperator(task_id="night", spec=spec))
    assert "a_module_of_the_worker" not in sys.modules


def test_outputs_of_other_tasks_are_not_known_yet(tmp_path: Path) -> None:
    @task
    def count() -> int:
        return 3

    def make() -> None:
        SweepOperator(task_id="a", spec=SPEC | {"num_samples": count()})
        SweepOperator(task_id="b", spec=count())
        SweepOperator.partial(task_id="c").expand(spec=[SPEC | {"mode": "mni"}])

    parse(tmp_path, make)


def test_the_other_operators_too(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gate\.spec\.mode"):
        parse(tmp_path, lambda: GateOperator(task_id="gate", spec=SPEC | {"mode": "mni"}, outcome={}))
    with pytest.raises(SpecError, match=r"train\.spec\.trainable"):
        parse(tmp_path, lambda: TrainOperator(task_id="train", spec={"name": "full"}))
    parse(tmp_path, lambda: TrainOperator(task_id="train", spec={"name": "full", "trainable": "m:f"}))


def test_the_decorators_spec_needs_neither_name_nor_trainable(tmp_path: Path) -> None:
    def make(**fields: Any) -> Any:
        spec = {name: SPEC[name] for name in ("metric", "mode", "param_space")} | fields

        @sweep(spec=spec)
        def alone(config: dict[str, Any]) -> dict[str, float]:
            return {"loss": config["x"]}

        return alone()

    parse(tmp_path, make)
    with pytest.raises(SpecError, match=r"alone\.spec\.num_samples"):
        parse(tmp_path, lambda: make(num_samples=0))


def test_a_failure_of_the_check_breaks_no_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("an error of the check")

    monkeypatch.setattr(room, "_check", fail)
    parse(tmp_path, lambda: SweepOperator(task_id="night", spec=SPEC | {"mode": "mni"}))
