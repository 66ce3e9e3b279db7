"""Airflow's facts about a task instance: its state, and the place of its sweep. Blocks: call it in a thread.

What tasks have left is taken as the JSON that it is: nothing is deserialized here, and what other tasks than
those of raysweep's operators left is not looked at, so that no text of theirs names a place to be read.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XCOM_RETURN_KEY, XComModel
from airflow.utils.session import create_session
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from raysweep_airflow.identity import TaskId
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.task import FINISHED, OPERATORS, TaskView

try:
    from airflow.models.task_state_store import TaskStateStoreModel

    StateModel: Any = TaskStateStoreModel
except ImportError:  # before Airflow 3.3
    StateModel = None

_IDS: Final = ("dag_id", "task_id", "run_id", "map_index")
JOB_KEY: Final = "raysweep_job"
"""The key of the operators in the task state store, set as soon as they have submitted."""
PLACE_KEY: Final = "_raysweep_place"
"""The same as an XCom: it is there where Airflow has deleted rows of the store."""


def find_task(dag_id: str, run_id: str, task_id: str, map_index: int) -> TaskView | None:
    """The task instance; None where there is none."""
    with create_session(scoped=False) as session:
        found = session.scalar(
            select(TaskInstance).where(
                TaskInstance.dag_id == dag_id,
                TaskInstance.run_id == run_id,
                TaskInstance.task_id == task_id,
                TaskInstance.map_index == map_index,
            )
        )
        if found is None:
            return None
        return TaskView(
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            map_index=map_index,
            state=str(found.state or ""),
            operator=found.operator_name or "",
            try_number=found.try_number,
            started_at=found.start_date.timestamp() if found.start_date else None,
            place=_place(session, found) if found.operator_name in OPERATORS else None,
        )


def find_over(since: datetime) -> set[tuple[TaskId, str]]:
    """Tasks that had a job, and are over since then or later: which, and what is new each time one ends."""
    found: set[tuple[TaskId, str]] = set()
    with create_session(scoped=False) as session:
        for model, key in (*([(StateModel, JOB_KEY)] if StateModel else []), (XComModel, PLACE_KEY)):
            rows = session.execute(
                select(*(getattr(TaskInstance, name) for name in (*_IDS, "updated_at", "try_number")))
                .join(model, and_(*(getattr(model, name) == getattr(TaskInstance, name) for name in _IDS)))
                .where(model.key == key, TaskInstance.state.in_(FINISHED), TaskInstance.updated_at >= since)
            )
            found |= {(TaskId(**dict(zip(_IDS, row, strict=False))), f"{row[-2]} {row[-1]}") for row in rows}
    return found


def _place(session: Session, task: TaskInstance) -> Place | None:
    """From the task state store, which outlives tries; or from the result, which outlives the store."""
    return (
        Place.of_job(_kept(session, task))
        or Place.of_job(_xcom(session, task, PLACE_KEY))
        or Place.of_result(_xcom(session, task, XCOM_RETURN_KEY))
    )


def _kept(session: Session, task: TaskInstance) -> Any:
    """The job of the task in the task state store; None before Airflow 3.3, which has no store."""
    if StateModel is None:
        return None
    found = session.scalar(
        select(StateModel.value).where(
            StateModel.dag_id == task.dag_id,
            StateModel.run_id == task.run_id,
            StateModel.task_id == task.task_id,
            StateModel.map_index == task.map_index,
            StateModel.key == JOB_KEY,
        )
    )
    return _decoded(found) if found else None


def _xcom(session: Session, task: TaskInstance, key: str) -> Any:
    entry = session.scalars(
        XComModel.get_many(
            run_id=task.run_id,
            key=key,
            task_ids=task.task_id,
            dag_ids=task.dag_id,
            map_indexes=task.map_index,
            limit=1,
        )
    ).first()
    # Not `deserialize_value`: it makes objects of what a task says, and this is the api-server.
    return entry.value if entry is not None else None


def _decoded(text: str) -> Any:
    """A store of another kind than Airflow's own may keep a reference here."""
    try:
        return json.loads(text)
    except ValueError:
        return None
