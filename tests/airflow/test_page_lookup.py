"""What the page takes from Airflow's database: of raysweep's own tasks, the JSON that they left, as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.airflow import pages  # noqa: F401  first: it sees to AIRFLOW_HOME

# isort: split
import sqlalchemy as sa
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from sqlalchemy.orm import Session

from raysweep.specs.identity import sweep_id
from raysweep_airflow import GateOperator, SweepOperator, TrainOperator
from raysweep_airflow.identity import TaskId
from raysweep_airflow.page import lookup
from raysweep_airflow.page.place import Place

IDS = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
RUN = sweep_id("s", "k")
RESULT = {"kind": "sweep", "run_id": RUN, "uri": f"s3://bucket/sweeps/{RUN}", "key": "k"}
JOB = {"kind": "sweep", "run_id": RUN, "storage_path": "s3://bucket/sweeps", "key": "k"}
PLACE = Place(kind="sweep", run_id=RUN, storage_path="s3://bucket/sweeps", key="k")
Look = Callable[..., Place | None]


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Iterator[Look]:
    """Where the page finds the sweep of a task: of this operator, with this result, and this in its store."""
    import_all_models()
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    tables = [model.__table__ for model in (DagRun, TaskInstance, XComModel, TaskStateStoreModel)]
    Base.metadata.create_all(engine, tables=tables)

    @contextmanager
    def session(scoped: bool = True) -> Iterator[Session]:
        with Session(engine) as made:
            yield made

    # The metadata database is Airflow's: here one in memory, with the four tables that are read.
    monkeypatch.setattr(lookup, "create_session", session)

    def put(into: Any, given: dict[str, Any]) -> None:
        """One row; columns that may not be empty and do not matter get something, and no default is asked."""
        columns = [sa.column(each.name, each.type) for each in into.__table__.columns]
        row = {each.name: _anything(each) for each in into.__table__.columns if not each.nullable} | given
        with engine.begin() as connection:
            connection.execute(sa.insert(sa.table(into.__tablename__, *columns)).values(row))

    def look(
        operator: str, *, result: Any = None, kept: str | None = None, place: Any = None, **ti: Any
    ) -> Place | None:
        run = {"id": 1, "dag_id": "d", "run_id": "r", "run_type": "manual", "state": "running"}
        put(DagRun, run)
        names = {"operator": operator, "custom_operator_name": operator}
        put(TaskInstance, {**IDS, "id": UUID(int=1), **names, **ti})
        if place is not None:
            put(XComModel, {**IDS, "dag_run_id": 1, "key": lookup.PLACE_KEY, "value": place})
        if result is not None:
            put(XComModel, {**IDS, "dag_run_id": 1, "key": "return_value", "value": result})
        if kept is not None:
            put(TaskStateStoreModel, {**IDS, "dag_run_id": 1, "key": lookup.JOB_KEY, "value": kept})
        found = lookup.find_task("d", "r", "t", -1)
        assert found is not None
        return found.place

    yield look
    engine.dispose()


def _anything(column: sa.Column[Any]) -> Any:
    try:
        kind: type = column.type.python_type
    except NotImplementedError:
        kind = datetime if "Date" in type(column.type).__name__ else str
    return {int: 0, str: "x", bool: False, dict: {}, datetime: datetime.now(UTC)}.get(kind, "x")


def test_the_result_of_our_own_tasks_says_where_it_lies(look: Look) -> None:
    assert look("SweepOperator", result=RESULT) == PLACE


def test_what_they_keep_comes_first(look: Look) -> None:
    assert (
        look("TrainOperator", result={"kind": "sweep", "uri": "s3://other/x"}, kept=json.dumps(JOB)) == PLACE
    )


def test_where_airflow_has_deleted_what_they_keep_the_xcom_says_it(look: Look) -> None:
    assert look("SweepOperator", place=JOB) == PLACE


NOW = datetime.now(UTC)
OVER = {"state": "skipped", "updated_at": NOW, "try_number": 2}
TASK = TaskId(dag_id="d", run_id="r", task_id="t")


@pytest.mark.parametrize("by", [{"kept": json.dumps(JOB)}, {"place": JOB}], ids=["store", "xcom"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, 1), ({"state": "deferred"}, 0), ({"state": None}, 0), ({"updated_at": NOW - timedelta(days=2)}, 0)],
)
def test_tasks_that_are_over_and_had_a_job_are_found(
    look: Look, by: dict[str, Any], changes: dict[str, Any], expected: int
) -> None:
    look("SweepOperator", **by, **(OVER | changes))
    found = lookup.find_over(NOW - timedelta(hours=24))
    assert [task for task, _ in found] == [TASK] * expected


@pytest.mark.parametrize("operator", ["BashOperator", "PythonOperator", "@task", "sweepoperator", ""])
def test_what_other_tasks_left_names_no_place(look: Look, operator: str) -> None:
    """It would be read with the api-server's credentials."""
    assert look(operator, result=RESULT, kept=json.dumps(JOB)) is None


CLASS = {
    "__classname__": "airflow.sdk.definitions.asset.Asset",
    "__version__": 1,
    "__data__": {"uri": "s3://a/b"},
}
TEXTS = {
    "a sweep as text": json.dumps(RESULT),
    "an object": json.dumps(CLASS),
    "an object that is not allowed": json.dumps(CLASS | {"__classname__": "subprocess.Popen"}),
    "an object in a sweep": json.dumps(RESULT | {"key": CLASS}),
    "no JSON": "{",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_text_is_deserialized(look: Look, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of our own tasks neither: what they hand on is a mapping, and Airflow keeps it as one."""

    def refuse(value: Any) -> Any:
        raise AssertionError(f"{value!r} was deserialized")

    monkeypatch.setattr(XComModel, "deserialize_value", refuse)
    assert look("SweepOperator", result=text) is None


def test_subclasses_are_known_by_what_they_come_from() -> None:
    class Nightly(SweepOperator):
        """One of a user's own."""

    with DAG("d", schedule=None):
        made = Nightly(task_id="t", spec="x.yaml")
        gate = GateOperator(task_id="g", spec="x.yaml", outcome={})
        train = TrainOperator(task_id="f", spec="x.yaml")
    assert [task.operator_name for task in (made, gate, train)] == [
        "SweepOperator",
        "GateOperator",
        "TrainOperator",
    ]
