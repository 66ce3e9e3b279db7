"""The context of a task whose operator is called without Airflow around it."""

from __future__ import annotations

from typing import Any, Final

from airflow.sdk import Asset

BEST: Final = Asset("best")


class Store(dict[str, Any]):
    """In place of the task state store, which is a table behind Airflow's API server."""

    def set(self, key: str, value: Any, retention: Any = None) -> None:
        self[key] = value


class Ti:
    """The part of a task instance that operators use."""

    dag_id, run_id, map_index, try_number, max_tries = "d", "r", -1, 1, 0

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


class Event:
    extra: dict[str, Any] | None = None


def context_of(operator: Any) -> dict[str, Any]:
    return {
        "ti": Ti(operator.task_id),
        "task_state_store": Store(),
        "dag": operator.dag,
        "outlet_events": {BEST: Event()},
    }
