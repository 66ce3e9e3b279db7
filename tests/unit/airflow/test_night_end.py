"""The end of the night as an argument of gate and training."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from raysweep.errors import SpecError
from raysweep.jobs import ClusterConnection
from raysweep.step import brief
from raysweep_airflow import GateOperator, TrainOperator, work
from raysweep_airflow.hooks import Access, RaySweepHook
from tests.unit.pipeline.gates import GATE, make_spec, stored, swept


class Store(dict[str, Any]):
    """In place of the task state store."""

    def set(self, key: str, value: Any, retention: Any = None) -> None:
        self[key] = value


class Ti:
    """What operators need of a task instance."""

    dag_id, task_id, run_id, map_index, try_number, max_tries = "d", "train", "r", -1, 1, 2


def handed(storage: Path, began: datetime) -> dict[str, Any]:
    outcome = swept("n1", 0.5).model_copy(update={"started_at": began.timestamp()})
    return brief(stored(make_spec(storage), outcome))


def test_a_training_after_the_end_of_the_night_is_skipped_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(cluster=ClusterConnection(address="http://127.0.0.1:9"))
    monkeypatch.setattr(RaySweepHook, "access", lambda self, **_: access)
    outcome = handed(tmp_path, datetime(2026, 1, 1, 21, 0, tzinfo=UTC))
    spec = {"name": "full", "trainable": "m:f", "storage_path": str(tmp_path)}
    with DAG("d", schedule=None) as dag:
        train = TrainOperator(task_id="train", spec=spec, outcome=outcome, deadline="06:00 Europe/Berlin")
    context = {"ti": Ti(), "task_state_store": Store(), "dag": dag, "outlet_events": {}}
    said = r"^training not begun: the night ended at 06:00\+01:00$"
    with pytest.raises(AirflowSkipException, match=said):
        work.Try(train, context).run()
    assert "raysweep_job" not in context["task_state_store"], "nothing was submitted"


def test_gate_and_training_end_with_the_night(tmp_path: Path) -> None:
    ends = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    outcome, fields = handed(tmp_path, datetime.now(UTC)), make_spec(tmp_path).to_dict()
    spec = {"name": "full", "trainable": "m:f", "storage_path": str(tmp_path)}
    with DAG("d", schedule=None) as dag:
        gate = GateOperator(
            task_id="gate", spec=fields, outcome=outcome, gate=GATE, deadline=ends.isoformat()
        )
        train = TrainOperator(task_id="train", spec=spec, outcome=outcome, deadline=ends.isoformat())
    assert gate.asked({"dag": dag}, fields).stop.deadline == ends
    assert train.asked({"dag": dag}, spec).stop.deadline == ends


@pytest.mark.parametrize("operator", [GateOperator, TrainOperator])
def test_a_wrong_deadline_is_refused_where_the_dag_is_read(operator: Any) -> None:
    with pytest.raises(SpecError, match="deadline: 'Berln' is not a time zone"):
        operator(task_id="t", spec="night.yaml", outcome={}, deadline="06:00 Berln")
