"""OpenLineage events of a whole night: its provider sends them from real tasks to a collector on loopback."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from devtools.airflow.local import LocalAirflow
from devtools.head import free_ports
from tests.airflow.servers import ROOT

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]
URI = {"type": "string", "format": "uri"}
NAME = {"type": "string", "minLength": 1}
UUID = {"type": "string", "format": "uuid"}


def required(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


FACETS = {"type": "object", "additionalProperties": required(_producer=URI, _schemaURL=URI)}
JOB = required(namespace=NAME, name=NAME)
DATA_SETS = {
    "type": "array",
    "items": {
        **required(namespace=NAME, name=NAME),
        "properties": {"facets": FACETS, "namespace": NAME, "name": NAME},
    },
}
# What OpenLineage's specification (version 2) requires of a run event and of the facet of its parent.
EVENT = required(
    eventTime={"type": "string", "format": "date-time"},
    producer=URI,
    schemaURL=URI,
    eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
    run={**required(runId=UUID), "properties": {"runId": UUID, "facets": FACETS}},
    job={**JOB, "properties": {"namespace": NAME, "name": NAME, "facets": FACETS}},
)
EVENT["properties"] |= {"inputs": DATA_SETS, "outputs": DATA_SETS}
PARENT = required(run=required(runId=UUID), job=JOB)


class Collector(ThreadingHTTPServer):
    """Keeps what is posted to it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.events: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


def test_each_task_of_a_night_tells_a_collector_what_it_has_read_and_written(tmp_path: Path) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason="its provider is not installed")
    storage = str(tmp_path / "sweeps")
    sweep = {
        "name": "flights",
        "trainable": "examples.quick:quadratic",
        "param_space": {"x": {"choice": [2.5]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 1,
        "storage_path": storage,
    }
    train = {
        "name": "full",
        "trainable": "examples.quick:steps",
        "config": {"steps": 2},
        "storage_path": storage,
    }
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        transport = {"type": "http", "url": f"http://127.0.0.1:{collector.server_port}"}
        environment = {
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
            "PYTHONPATH": str(ROOT),
            "NO_PROXY": "*",
        }
        (port,) = free_ports(1)
        airflow = LocalAirflow(
            tmp_path / "home", dags=ROOT / "tests/airflow/lineage", port=port, environment=environment
        )
        airflow.home.mkdir()
        airflow.command("db", "migrate")
        conf = json.dumps({"sweep": sweep, "train": train})
        shown = airflow.command("dags", "test", "lineage", "--conf", conf)
        collector.shutdown()
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    checker = jsonschema.Draft202012Validator(EVENT, format_checker=jsonschema.FormatChecker())
    for event in collector.events:
        checker.validate(event)
        found[event["job"]["name"]][event["eventType"]] = event
    tasks = ["lineage.sweep", "lineage.gate", "lineage.approve", "lineage.train"]
    assert set(tasks) <= set(found), shown[-4000:]
    parents = set()
    for name in tasks:
        assert {"START", "COMPLETE"} <= set(found[name]), name
        parent = found[name]["COMPLETE"]["run"]["facets"]["parent"]
        jsonschema.validate(parent, PARENT, format_checker=jsonschema.FormatChecker())
        assert (parent["job"]["namespace"], parent["job"]["name"]) == ("tests", "lineage")
        parents.add(parent["run"]["runId"])
    assert len(parents) == 1, "all tasks belong to one run"

    def names(task: str, which: str) -> list[str]:
        return [each["name"] for each in found[f"lineage.{task}"]["COMPLETE"][which]]

    ((swept,),) = [names("sweep", "outputs")]
    champion = f"{storage}/champions/flights/loss.min"
    assert Path(swept).parent == Path(storage)
    for task in ("gate", "approve"):
        assert (names(task, "inputs"), names(task, "outputs")) == ([swept], [champion])
    assert names("train", "inputs") == [swept]
    (model,) = names("train", "outputs")
    assert model.startswith(f"{storage}/full-")
