"""Who may trigger a DAG may fill in its form, no more: whatever is typed stays one value of the spec."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from raysweep_airflow import documents
from tests.airflow import pages  # noqa: F401  first: it sees to AIRFLOW_HOME

ROOT = Path(__file__).parents[2]
PARAMS = {"example": "quick", "deadline": "06:00 Europe/Berlin", "storage": "/sweeps"}
LoadDags = Callable[[], dict[str, Any]]


@pytest.fixture
def load_dags() -> LoadDags:
    """Reads the files of `dags/`, as a dag-processor does."""

    def load() -> dict[str, Any]:
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(str(ROOT / "dags"), load_op_links=False)
        assert bag.import_errors == {}
        return dict(bag.dags)

    return load


@pytest.fixture(scope="module")
def night() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(str(ROOT / "dags" / "nightly_sweep.py"), load_op_links=False).dags["nightly_sweep"]


INJECTED = {
    "another trainable": '06:00 UTC"\n  , min_trials: 0}\ntrainable: subprocess:call\nx: {y: "',
    "another trainable in a tag": '06:00 UTC"}\n!!value trainable: subprocess:call\nparam_space: {args: "ls',
    "an end of the flow": '06:00 UTC", grace_s: 9999, x: "',
    "a template": "{{ conn.raysweep_default.password }}",
    "a statement": "{% include 'quick/train.yaml' %}",
    "an alias": "*a",
    "a folded end": "x\u2028trainable: subprocess:call",
    "a closed text": '"}',
    "a backslash": "\\",
}


@pytest.mark.parametrize("name", ["deadline", "storage"])
@pytest.mark.parametrize("text", INJECTED.values(), ids=INJECTED)
def test_what_is_typed_stays_one_value(night: Any, name: str, text: str) -> None:
    """Even where no pattern is checked, as in `airflow dags test`."""
    as_asked = documents.read("night.yaml", {"dag": night, "params": PARAMS})
    found = documents.read("night.yaml", {"dag": night, "params": PARAMS | {name: text}})
    if name == "deadline":
        assert found == as_asked | {"stop": as_asked["stop"] | {"deadline": text}}
        with pytest.raises(SpecError, match=r"stop\.deadline"):
            SweepSpec.from_any(found)
    else:
        assert found == as_asked | {"storage_path": text}
    train = documents.read("night_train.yaml", {"dag": night, "params": PARAMS | {"storage": text}})
    assert train["storage_path"] == text
    assert TrainSpec.from_any(train | {"storage_path": "/sweeps"}).trainable == train["trainable"]


@settings(max_examples=60, deadline=None)
@given(st.text())
@example("😀")
@example("\x85trainable: x")
def test_whatever_is_typed_stays_one_value(night: Any, text: str) -> None:
    as_asked = documents.read("night.yaml", {"dag": night, "params": PARAMS})
    for name in ("deadline", "storage"):
        found = documents.read("night.yaml", {"dag": night, "params": PARAMS | {name: text}})
        assert found.keys() - {"storage_path"} == as_asked.keys() - {"storage_path"}
        assert found["trainable"] == as_asked["trainable"]
        given = found["stop"]["deadline"] if name == "deadline" else found.get("storage_path", "")
        assert given == text


@pytest.mark.parametrize(
    ("dag_id", "name", "bad"),
    [
        ("nightly_sweep", "deadline", '06:00"}\ntrainable: subprocess:call'),
        ("nightly_sweep", "deadline", ""),
        ("nightly_sweep", "deadline", "6" * 100),
        ("nightly_sweep", "storage", "/tmp/of_my_own"),
        ("nightly_sweep", "storage", "s3://of-my-own/bucket"),
        ("nightly_sweep", "example", "../../etc/passwd"),
        ("sweep_many", "airports", ["{{ conn.raysweep_default.password }}"]),
        ("sweep_many", "airports", ["jfk/../x"]),
        ("sweep_many", "num_samples", 10**9),
    ],
)
def test_the_form_refuses_what_is_none_of_its_values(
    load_dags: LoadDags, monkeypatch: pytest.MonkeyPatch, dag_id: str, name: str, bad: Any
) -> None:
    """By its schema: Airflow does not trigger the run. Where sweeps are stored is the author's to say."""
    from airflow.sdk.exceptions import ParamValidationError

    monkeypatch.setenv("RAYSWEEP_STORAGE", "s3://bucket/sweeps")
    params = load_dags()[dag_id].params
    params.validate()
    with pytest.raises(ParamValidationError):
        params[name] = bad  # which checks it; as what triggers a run does


def test_the_form_takes_what_is_meant(load_dags: LoadDags, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_STORAGE", "s3://bucket/sweeps")
    params = load_dags()["nightly_sweep"].params
    for deadline in (
        "06:00 America/Argentina/Buenos_Aires",
        "2026-11-22T06:00:00.123456+01:00",
        "06:00 Etc/GMT+5",
    ):
        params["deadline"] = deadline
        params.validate()
    for storage in ("", "s3://bucket/sweeps"):
        params["storage"] = storage
        params.validate()


def test_the_whole_night_has_an_end(night: Any) -> None:
    """The sweep by its deadline, the steps after it by their own, the run by one that holds them all."""
    sweep_s = timedelta(hours=8)
    gate, train = night.get_task("gate"), night.get_task("train")
    assert gate.execution_timeout
    assert train.execution_timeout
    once = sweep_s + gate.execution_timeout + train.execution_timeout
    assert once < night.dagrun_timeout <= timedelta(hours=12)
