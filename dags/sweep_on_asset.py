"""A sweep here, the training there: a DAG that is scheduled on what another one's sweep found.

`find_best` updates the asset `best_config`. The event carries the best config, its metric and the URIs: the
training needs to know nothing of the DAG, the cluster or the people that the sweep belongs to.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, Asset, task

from raysweep_airflow import SweepOperator, TrainOperator
from raysweep_airflow.compat import AirflowSkipException

SPECS = Path(__file__).resolve().parents[1] / "examples"
JOB = {"py_modules": [str(SPECS)]}
BEST = Asset("best_config")
OPERATORS: dict[str, Any] = {
    "job": JOB,
    "address": os.environ.get("RAYSWEEP_ADDRESS") or None,
    "deferrable": True,
    "retries": 3,
    "retry_delay": timedelta(minutes=2),
}
DAGS: dict[str, Any] = {
    "start_date": pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    "catchup": False,
    "max_active_runs": 1,
    "template_searchpath": [str(SPECS)],
    "doc_md": __doc__,
    "tags": ["raysweep"],
}

with DAG("find_best", schedule=None, **DAGS):
    SweepOperator(task_id="sweep", spec="quick/sweep.yaml", outlets=[BEST], **OPERATORS)

with DAG("train_on_best", schedule=BEST, **DAGS):

    @task
    def found(triggering_asset_events: Any = None) -> dict[str, Any]:
        """What the newest sweep found."""
        events = list((triggering_asset_events or {}).get(BEST) or [])
        if not events:
            raise AirflowSkipException("no sweep has ended since: trigger find_best")
        return dict(events[-1].extra)

    TrainOperator(task_id="train", spec="quick/train.yaml", outcome=found(), **OPERATORS)
