"""Lineage of the operators: sweep, gate, approval and training, with and without OpenLineage's provider."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from airflow.sdk import DAG

from raysweep.outcome import TrainOutcome
from raysweep.outcome.train import DataDigest
from raysweep.pipeline import with_gate
from raysweep.step import brief
from raysweep_airflow import ApproveOperator, GateOperator, SweepOperator, TrainOperator
from raysweep_airflow.lineage import DataSet, of_gate
from tests.unit.delivery.servers import StandIn
from tests.unit.pipeline.gates import night, swept

SPEC: dict[str, Any] = {
    "name": "flights",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "auc",
    "mode": "max",
}


def handed(storage: Path, key: str, score: float) -> dict[str, Any]:
    outcome = swept(key, score).model_copy(update={"uri": f"{storage}/{key}"})
    return brief(with_gate(outcome, night(storage, key, score)))


def operators(storage: Path) -> dict[str, Any]:
    """One of each, after it has handed its result on."""
    outcome = handed(storage, "n1", 0.5)
    with DAG("d", schedule=None):
        sweep = SweepOperator(task_id="sweep", spec=SPEC)
        gate = GateOperator(task_id="gate", spec=SPEC, outcome=outcome)
        approve = ApproveOperator(task_id="approve", outcome=outcome)
        train = TrainOperator(task_id="train", spec={"name": "full", "trainable": "m:f"}, outcome=outcome)
    sweep.result = gate.result = outcome
    approve.execute({"ti": None, "task_state_store": {}})
    read = DataDigest(
        name="rows", uri="s3://bucket/rows", digest="ab" * 32, of="content", objects=1, size_bytes=2
    )
    ended: dict[str, Any] = {"status": "completed", "started_at": 1, "ended_at": 2, "data": (read,)}
    model = {"model_uri": "s3://bucket/models/full-1"}
    train.result = train.handed_on({}, TrainOutcome(run_id="full-1", name="full", **ended, **model))
    return {"sweep": sweep, "gate": gate, "approve": approve, "train": train}


def test_from_the_data_over_sweep_and_champion_to_the_model(tmp_path: Path) -> None:
    found = operators(tmp_path)
    sweep, champion = DataSet(f"{tmp_path}/n1"), DataSet(f"{tmp_path}/champions/flights/auc.max")
    lineage = found["sweep"].lineage(found["sweep"].result)
    assert (lineage.inputs, lineage.outputs) == ((), (sweep,))
    for each in (found["gate"].lineage(found["gate"].result), of_gate(found["approve"].result)):
        assert (each.inputs, each.outputs) == ((sweep,), (champion,))
    lineage = found["train"].lineage(found["train"].result)
    assert lineage.inputs == (sweep, DataSet("s3://bucket/rows", "ab" * 32))
    assert lineage.outputs == (DataSet("s3://bucket/models/full-1"),)


def test_what_is_not_promoted_writes_no_champion(tmp_path: Path) -> None:
    handed(tmp_path, "n0", 0.9)
    lineage = of_gate(handed(tmp_path, "n1", 0.5))
    assert (lineage.inputs, lineage.outputs) == ((DataSet(f"{tmp_path}/n1"),), ())


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("/data/sweeps/n1", ("file", "/data/sweeps/n1")),
        ("file:///data/sweeps/n1", ("file", "/data/sweeps/n1")),
        ("s3://bucket/sweeps/n1", ("s3://bucket", "sweeps/n1")),
        ("gs://bucket", ("gs://bucket", "/")),
    ],
)
def test_data_sets_are_named_by_openlineages_rules(uri: str, place: tuple[str, str]) -> None:
    assert DataSet(uri).place == place


def test_a_task_that_handed_nothing_on_says_nothing() -> None:
    with DAG("d", schedule=None):
        sweep = SweepOperator(task_id="sweep", spec=SPEC)
        approve = ApproveOperator(task_id="approve", outcome={})
    assert sweep.get_openlineage_facets_on_complete(None) is None
    assert approve.get_openlineage_facets_on_complete(None) is None


class Collector(StandIn):
    """Takes OpenLineage events on loopback."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def serve(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.events.append((path, orjson.loads(body)))
        return 200, {}


def test_a_collector_gets_the_events_of_a_night(tmp_path: Path) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason="its provider is not installed")
    from airflow.providers.openlineage.extractors.base import DefaultExtractor
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    collector = Collector()
    with collector.running():
        client = OpenLineageClient(config={"transport": {"type": "http", "url": collector.url}})
        for name, operator in operators(tmp_path).items():
            found: Any = DefaultExtractor(operator).extract_on_complete(None)
            client.emit(
                RunEvent(
                    eventTime=datetime.now(UTC).isoformat(),
                    producer="https://example.com/tests",
                    run=Run(runId=str(uuid.uuid4())),
                    job=Job(namespace="airflow", name=f"d.{name}"),
                    eventType=RunState.COMPLETE,
                    inputs=found.inputs,
                    outputs=found.outputs,
                )
            )
        client.close()
    events = {event["job"]["name"]: event for _, event in collector.events}
    assert list(events) == ["d.sweep", "d.gate", "d.approve", "d.train"]
    data = events["d.train"]["inputs"]
    assert [(each["namespace"], each["name"]) for each in data] == [
        ("file", f"{tmp_path}/n1"),
        ("s3://bucket", "rows"),
    ]
    assert data[1]["facets"]["version"]["datasetVersion"] == "ab" * 32
    assert events["d.gate"]["outputs"][0]["name"].endswith("/champions/flights/auc.max")
