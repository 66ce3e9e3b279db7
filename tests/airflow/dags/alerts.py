"""A run that has missed the end of its night when it begins: the alert is due 30 hours before 06:00."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, AsyncCallback, task

from raysweep_airflow import deadline_alert
from tests.airflow.alerts import note

NIGHT = {"deadline": "06:00 Europe/Berlin"}

with DAG(
    "late",
    schedule=None,
    deadline=deadline_alert(NIGHT, AsyncCallback(note), before=timedelta(hours=30)),
):

    @task
    def work() -> None:
        """Anything."""

    work()
