"""One task of a DAG on a loopback Jobs API; Airflow's side is a few attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import TaskDeferred

from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import SweepOperator, work
from tests.unit.jobs.api import Api


class Store(dict[str, Any]):
    """In place of the task state store, which is a table behind Airflow's API server."""

    def set(self, key: str, value: Any, retention: Any = None) -> None:
        self[key] = value


class Ti:
    """What operators need of a task instance."""

    dag_id, task_id, run_id, map_index, try_number, max_tries = "d", "sweep", "r", -1, 1, 2

    def xcom_push(self, key: str, value: Any) -> None:
        """Links: nobody looks."""


class Task:
    """One task and its tries, on a cluster that the test has a hand in."""

    def __init__(self, api: Api, storage: Path) -> None:
        self.api, self.storage, self.store = api, storage, Store()
        self.operator: Any = None

    def run(self, **options: Any) -> Any:
        spec = {
            "name": "flights",
            "trainable": "m:f",
            "param_space": {"x": {"uniform": [0, 1]}},
            "metric": "loss",
            "mode": "min",
            "storage_path": str(self.storage),
        }
        with DAG("d", schedule=None) as dag:
            options = {"deferrable": True} | options
            self.operator = SweepOperator(task_id="sweep", spec=spec, **options)
        self.operator.deferrable = options["deferrable"]
        context = {"ti": Ti(), "task_state_store": self.store, "dag": dag, "outlet_events": {}}
        return work.Try(self.operator, context).run()

    def deferred(self, **options: Any) -> dict[str, Any]:
        """What the trigger is given."""
        with pytest.raises(TaskDeferred) as raised:
            self.run(**options)
        trigger: Any = raised.value.trigger
        return dict(trigger.serialize()[1])

    def asked_to_cancel(self) -> Any:
        [run_id] = [path.name for path in self.storage.glob("flights-*")]
        return SweepFolder(open_store(str(self.storage)), run_id).read_cancellation()
