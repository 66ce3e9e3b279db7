"""Templates in what a DAG gives: one value each, of the type that its field has, whatever the DAG prefers."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG

import raysweep as rs
from raysweep.errors import SpecError
from raysweep_airflow import GateOperator, SweepOperator, documents
from raysweep_airflow.compat import AirflowFailException

SPEC: dict[str, Any] = {
    "name": "p",
    "trainable": "os:getcwd",
    "metric": "loss",
    "mode": "min",
    "param_space": {"x": {"uniform": [0, 1]}},
}
CONTEXT = {
    "params": {"n": 2, "low": 0.001, "yes": True, "none": None, "text": "1.10", "list": [1], "map": {"a": 1}},
    "conf": {"n": "2", "low": "0.001", "yes": "True", "word": "many", "null": "null"},
    "run_id": "r1",
}


@pytest.fixture(params=[False, True], ids=["text", "native"])
def native(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def rendered(native: bool = False, **fields: Any) -> dict[str, Any]:
    with DAG("d", schedule=None, render_template_as_native_obj=native):
        operator = SweepOperator(task_id="sweep", spec=SPEC | fields)
    operator.render_template_fields(CONTEXT)  # type: ignore[arg-type]
    return dict(operator.spec)


@pytest.mark.parametrize("source", ["params", "conf"], ids=["a number", "a text"])
def test_a_number_comes_from_a_parameter(source: str, native: bool) -> None:
    """As in a file, and also where it was typed as text: in a Variable, or in the run's conf."""
    spec = rs.SweepSpec.from_any(
        rendered(
            native,
            num_samples=f"{{{{ {source}.n }}}}",
            param_space={"lr": {"loguniform": [f"{{{{ {source}.low }}}}", 0.1]}},
            failure={"max_failures": f"{{{{ {source}.n }}}}"},
        )
    )
    assert spec.num_samples == 2
    assert spec.to_dict()["param_space"] == {"lr": {"loguniform": [0.001, 0.1]}}
    assert spec.failure.max_failures == 2


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("num_samples", "{{ params.n }}", 2),
        ("num_samples", "{{ params.n * 3 }}", 6),
        ("num_samples", "{{ params.n }}{{ params.n }}", 22),
        ("num_samples", "{% if params.yes %}5{% endif %}", 5),
        ("num_samples", "{{ params.none }}", None),
        ("num_samples", "{{ conf.null }}", None),
        ("num_samples", "{{ conf.word }}", "many"),
        ("num_samples", "{{ '' }}", ""),
        ("num_samples", " {{- params.n -}} ", 2),
        ("num_samples", "{{ '}}' and params.n }}", 2),
        ("name", "{{ params.n }}", "2"),
        ("name", "{{ params.text }}", "1.10"),
        ("name", "night-{{ params.n }}", "night-2"),
        ("metric", "{{ params.text }}", "1.10"),
        ("tags", {"day": "{{ params.n }}", "v": "{{ params.text }}"}, {"day": "2", "v": "1.10"}),
        ("param_space", {"n": "{{ params.n }}"}, {"n": 2}),
        ("param_space", {"v": "{{ params.text }}"}, {"v": "1.10"}),
        ("param_space", {"v": {"choice": ["{{ params.text }}", "2"]}}, {"v": {"choice": ["1.10", "2"]}}),
        ("param_space", {"fold": {"choice": ["1", "2"]}}, {"fold": {"choice": ["1", "2"]}}),
        ("stop", {"time_budget_s": "{{ conf.n }}"}, {"time_budget_s": 2}),
        ("resources", {"memory": "{{ params.n }}GiB"}, {"memory": "2GiB"}),
        ("no_such_field", "{{ params.n }}", 2),
    ],
)  # fmt: skip
def test_each_has_the_type_of_its_field(native: bool, field: str, value: Any, expected: Any) -> None:
    found = rendered(native, **{field: value})[field]
    assert (found, type(found)) == (expected, type(expected))


def test_what_has_no_template_stays_as_it_is_where_the_dag_renders_native_objects() -> None:
    space = {"fold": {"choice": ["1", "2"]}, "version": "1.10", "tuple": "(1, 2)", "none": "None"}
    assert rendered(native=True, param_space=space, tags={"on": "True"}) == SPEC | {
        "param_space": space,
        "tags": {"on": "True"},
    }


def test_a_static_number_in_quotes_is_still_refused() -> None:
    with pytest.raises(SpecError, match=r"num_samples.*'2'"):
        rs.SweepSpec.from_any(rendered(num_samples="2"))


def test_a_template_stays_one_value_unless_the_dag_renders_native_objects() -> None:
    """A form's field of an object must not become a part of a spec, which could name code."""
    space = {"a": "{{ params.list }}", "b": "{{ params.map }}"}
    assert rendered(param_space=space)["param_space"] == {"a": "[1]", "b": "{'a': 1}"}
    assert rendered(native=True, param_space=space)["param_space"] == {"a": [1], "b": {"a": 1}}


def test_an_undefined_name_fails_for_good(native: bool) -> None:
    for text in ("{{ params.nothing }}", "{{ nothing }}", "a {{ nothing }}"):
        with pytest.raises(AirflowFailException, match=r"nothing.*\{\{ and \}\}"):
            rendered(native, num_samples=text)


def test_a_gate_takes_numbers_too() -> None:
    with DAG("d", schedule=None):
        gate = GateOperator(task_id="gate", spec=SPEC, outcome={}, gate={"seeds": "{{ conf.n }}"})
    gate.render_template_fields(CONTEXT)  # type: ignore[arg-type]
    assert gate.gate == {"seeds": 2}


def test_a_job_takes_numbers_and_its_variables_are_texts() -> None:
    with DAG("d", schedule=None):
        operator = SweepOperator(task_id="sweep", spec=SPEC)
    given = {
        "driver_cpus": "{{ conf.n }}",
        "env_vars": {"N": "{{ params.n }}", "V": "{{ params.text }}"},
        "metadata": {"n": "{{ params.n }}"},
    }
    assert operator.rendered(given, CONTEXT, "JobOptions") == {
        "driver_cpus": 2,
        "env_vars": {"N": "2", "V": "1.10"},
        "metadata": {"n": "2"},
    }


@pytest.mark.parametrize(
    "text", ["{'name': 'p', 'num_samples': None}", "{'name': 'p', 'nested': {'a': True}}\n"]
)
def test_a_spec_from_an_xcom_as_text_is_refused_with_the_fix(text: str) -> None:
    """YAML would take it, and `None` for a text."""
    with DAG("d", schedule=None) as dag:
        operator = SweepOperator(task_id="sweep", spec="{{ ti.xcom_pull('made') }}")

    class Ti:
        @staticmethod
        def xcom_pull(task_ids: str) -> Any:
            return eval(text)

    operator.render_template_fields({"ti": Ti})  # type: ignore[typeddict-item]
    with pytest.raises(SpecError, match=r"is the text of a Python dict.*spec=made\.output"):
        documents.read(operator.spec, {"dag": dag})
