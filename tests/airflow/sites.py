"""The page's app as Airflow mounts it, for tests that leave out Airflow's login and database.

What Airflow does about users is tried on its real server, in `test_page_servers.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import pages  # noqa: F401  first: it sees to AIRFLOW_HOME

# isort: split
from airflow.api_fastapi.core_api.security import get_user
from fastapi import FastAPI

from raysweep.simulate import Simulated
from raysweep_airflow.page import app as room
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.task import TaskView

SWEEP_ID = "flights-0123abcd"
URL = "/raysweep/dags/nightly/sweep.json?run_id=manual__1&task_id=sweep&map_index=-1"
PAGE = URL.replace("sweep.json", "sweep")
Find = Callable[..., TaskView | None]
Night = tuple[dict[str, Any], Simulated]


def task(state: str = "deferred", *, operator: str = "SweepOperator", **changes: Any) -> TaskView:
    fields = {
        "dag_id": "nightly",
        "run_id": "manual__1",
        "task_id": "sweep",
        "map_index": -1,
        "try_number": 1,
    }
    started = {"started_at": time.time()} if state else {}
    return TaskView(**(fields | {"state": state, "operator": operator} | started | changes))


def place(root: Path, **changes: Any) -> Place:
    job = {
        "job_id": f"{SWEEP_ID}.1",
        "job_url": f"http://ray:8265/#/jobs/{SWEEP_ID}.1",
        "address": "http://ray:8265",
    }
    return Place(
        **({"kind": "sweep", "run_id": SWEEP_ID, "storage_path": str(root), "key": "k"} | job | changes)
    )


def site(monkeypatch: pytest.MonkeyPatch, find: Find) -> FastAPI:
    """The app as Airflow mounts it, with the user let in and Airflow's database left out."""
    monkeypatch.setattr(room, "find_task", find)
    app, root = room.make_app(), FastAPI()
    for asked in (room.may_read, room.may_read_xcom, get_user):
        app.dependency_overrides[asked] = lambda: None
    root.mount("/raysweep", app)
    return root
