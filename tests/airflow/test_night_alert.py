"""A deadline alert by the end of a night on a real Airflow: scheduler and triggerer carry it out."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from raysweep.documents.wall_clock import next_time
from tests.airflow.servers import Airflow, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(300)]


def test_a_run_that_misses_the_end_of_its_night_is_told(airflow: Airflow) -> None:
    airflow.wait_for_dag("late")
    began = datetime.now(UTC)
    run_id = airflow.trigger_run("late", f"late-{os.getpid()}")
    log = airflow.home / "alerts.log"
    wait_until(log.exists, "the alert was not called", timeout_s=120)
    ((told, at),) = [json.loads(line) for line in log.read_text().splitlines()]
    ends = {next_time("06:00 Europe/Berlin", moment) for moment in (began, datetime.now(UTC))}
    assert told == run_id
    assert datetime.fromisoformat(at) + timedelta(hours=30) in ends
