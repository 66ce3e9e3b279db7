"""Airflow's deadline alert that reads the end of the night from its spec, through a real DagBag."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, SyncCallback
from airflow.serialization.decoders import decode_deadline_alert
from airflow.serialization.serialized_objects import DagSerialization

from raysweep.documents.wall_clock import next_time
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec
from raysweep_airflow.night_alert import NightEnd, deadline_alert

TELL = SyncCallback("builtins.print")
SWEEP = {"name": "flights", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}}
DAG_FILE = """
from datetime import timedelta
from airflow.sdk import DAG, SyncCallback
from raysweep_airflow import deadline_alert

with DAG("nightly", schedule=None, deadline=deadline_alert("night.yaml", SyncCallback("builtins.print"))):
    pass
with DAG("early", schedule=None, deadline=deadline_alert(
    "night.yaml", SyncCallback("builtins.print"), before=timedelta(minutes=30)
)):
    pass
"""


class Session:
    """In place of a database session: one run, due at this time."""

    def __init__(self, due: datetime | None = None) -> None:
        self.due = due

    def scalar(self, asked: Any) -> datetime | None:
        assert "run_after" in str(asked)
        return self.due


def evaluated(alert: Any, due: datetime | None = None) -> datetime:
    session: Any = Session(due)
    found: datetime = alert.reference.evaluate_with(
        session=session, interval=alert.interval, dag_id="nightly", run_id="r"
    )
    return found


def test_a_dag_file_has_it_in_one_line_and_the_scheduler_needs_no_file(tmp_path: Path) -> None:
    night = tmp_path / "night.yaml"
    night.write_text("sweep: flights.yaml\ntrain: {}\ndeadline: 06:00 Europe/Berlin\n")
    (tmp_path / "dag.py").write_text(DAG_FILE)
    bag = DagBag(str(tmp_path), load_op_links=False)
    assert bag.import_errors == {}
    stored = {
        dag_id: json.loads(json.dumps(DagSerialization.to_dict(dag))) for dag_id, dag in bag.dags.items()
    }
    night.unlink()
    now = datetime.now(UTC)
    ends = next_time("06:00 Europe/Berlin", now)
    for dag_id, at in (("nightly", ends), ("early", ends - timedelta(minutes=30))):
        (deadline,) = stored[dag_id]["dag"]["deadline"]
        alert = decode_deadline_alert(deadline)
        assert alert.name == "End of the night"
        assert alert.reference.serialize_reference()["deadline"] == "06:00 Europe/Berlin"
        assert evaluated(alert) == at


def test_a_run_that_is_due_later_has_the_end_after_that() -> None:
    due = datetime.now(UTC) + timedelta(days=3)
    session: Any = Session(due)
    found = NightEnd("06:00 Europe/Berlin")._evaluate_with(session=session, dag_id="d", run_id="r")
    assert found == next_time("06:00 Europe/Berlin", due)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("06:00 Europe/Berlin", "06:00 Europe/Berlin"),
        ("2026-11-27T06:00+01:00", "2026-11-27T05:00:00+00:00"),
        ({"sweep": SWEEP, "deadline": "6:00 UTC"}, "06:00 UTC"),
        ({"sweep": SWEEP | {"stop": {"deadline": "04:00 UTC"}}}, "04:00 UTC"),
        (SweepSpec.model_validate(SWEEP | {"stop": {"deadline": "04:00 UTC"}}), "04:00 UTC"),
    ],
)
def test_the_deadline_is_the_pipelines_or_the_sweeps(given: Any, wanted: str) -> None:
    assert deadline_alert(given, TELL).reference == NightEnd(wanted)


def test_files_are_beside_the_one_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "night.json").write_text(json.dumps({"sweep": "specs/flights.yaml"}))
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/flights.yaml").write_text("stop: {deadline: 05:00 UTC}\n")
    assert deadline_alert(tmp_path / "night.json", TELL).reference == NightEnd("05:00 UTC")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (SWEEP, "spec: has no deadline; set deadline of a pipeline, or stop.deadline of a sweep"),
        ({"deadline": "{{ params.end }}"}, "is known only when a task runs; give deadline_alert the time"),
        ({"deadline": "06:00 Berln"}, "deadline: 'Berln' is not a time zone"),
        (7, "spec: is a int"),
    ],
)
def test_what_cannot_be_read_before_a_run_is_refused_where_the_dag_is_read(given: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said), DAG("d", schedule=None, deadline=deadline_alert(given, TELL)):
        pass
