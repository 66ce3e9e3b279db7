"""A spec however a DAG gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

import raysweep as rs
from raysweep.errors import SpecError
from raysweep_airflow import SweepOperator, documents
from raysweep_airflow.compat import AirflowFailException

SPEC = """
name: flights
num_samples: {{ params.samples }}
tags: {day: "{{ ds }}"}
"""
FIELDS = {
    "name": "a",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "x",
    "mode": "max",
}


@pytest.fixture
def context(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/night.yaml").write_text(SPEC)
    (tmp_path / "plain.json").write_text('{"name": "plain"}')
    dag = DAG("d", schedule=None)
    dag.fileloc = str(tmp_path / "dag.py")
    return {"dag": dag, "params": {"samples": 7}, "ds": "2026-11-21"}


def test_a_file_beside_the_dag_is_rendered(context: dict[str, Any]) -> None:
    found = documents.read("specs/night.yaml", context)
    assert found == {"name": "flights", "num_samples": 7, "tags": {"day": "2026-11-21"}}


def test_also_where_the_dag_renders_native_objects(context: dict[str, Any]) -> None:
    context["dag"].render_template_as_native_obj = True
    assert documents.read("specs/night.yaml", context)["tags"] == {"day": "2026-11-21"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain.json", {"name": "plain"}),
        ({"name": "a"}, {"name": "a"}),
        ("name: text\nmode: min\n", {"name": "text", "mode": "min"}),
        ('{"name": "json"}', {"name": "json"}),
        ("{name: flow}", {"name": "flow"}),
    ],
)
def test_other_forms(context: dict[str, Any], given: Any, expected: Any) -> None:
    assert documents.read(given, context) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("nowhere.yaml", "no file 'nowhere.yaml'"),
        ("just a text", "not a mapping"),
        (["a"], "is a list"),
        (None, "is a NoneType"),
    ],
)
def test_what_is_none(context: dict[str, Any], given: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        documents.read(given, context)


def test_a_file_that_needs_a_logical_date_says_so(context: dict[str, Any]) -> None:
    del context["ds"]
    with pytest.raises(SpecError, match="a run without a logical date has none; use"):
        documents.read("specs/night.yaml", context)


def test_a_field_that_needs_a_logical_date_fails_for_good() -> None:
    with DAG("d", schedule=None):
        operator = SweepOperator(task_id="sweep", spec=FIELDS | {"tags": {"day": "{{ ds }}"}})
    with pytest.raises(AirflowFailException, match="'ds' is undefined in this run; a run without a logical"):
        operator.render_template_fields({})  # type: ignore[typeddict-item]


def test_nested_fields_are_rendered() -> None:
    with DAG("d", schedule=None):
        given = FIELDS | {"tags": {"day": "{{ ds }}"}, "stop": {"target": 0.9}}
        operator = SweepOperator(task_id="sweep", spec=given)
    operator.render_template_fields({"ds": "2026-11-21"})  # type: ignore[typeddict-item]
    assert operator.spec == FIELDS | {"tags": {"day": "2026-11-21"}, "stop": {"target": 0.9}}


def test_a_spec_object_becomes_data_in_which_templates_can_be() -> None:
    spec = rs.SweepSpec(
        name="a",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="x",
        mode="max",
        tags={"run": "{{ run_id }}"},
    )
    with DAG("d", schedule=None):
        operator = SweepOperator(task_id="sweep", spec=spec)
    operator.render_template_fields({"run_id": "r1"})  # type: ignore[typeddict-item]
    assert rs.SweepSpec.from_any(operator.spec) == spec.replace(tags={"run": "r1"})
