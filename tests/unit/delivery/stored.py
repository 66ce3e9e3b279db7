"""What trackers have stored, read back from where they stored it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysweep.hooks.tensorboard import read_records
from tests.unit.delivery.contract import Stored, shown
from tests.unit.delivery.otlp import Collector, values
from tests.unit.delivery.servers import MlflowServer

_MLFLOW_STATUS = {"completed": "FINISHED", "stopped": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}


def in_tensorboard(folder: Path) -> Stored:
    """From the event files of a sweep's folder, which has one for each trial."""
    found = Stored([])
    for path in sorted(folder.glob("*/events.*")):
        for event in events_of(path):
            for value in event.summary.value:
                if not value.tag.startswith("_hparams_"):
                    found.points.append((path.parent.name, event.step, value.tag, shown(value.simple_value)))
    return found


def events_of(path: Path) -> Iterator[Any]:
    """The events of a file of TensorBoard's."""
    from tensorboardX.proto import event_pb2

    for record in read_records(path.read_bytes()):
        yield event_pb2.Event.FromString(record)


def by_mlflow(server: MlflowServer) -> Stored:
    """From the runs of a server; each trial has one."""
    found = Stored([])
    for run in server.runs.values():
        trial = run["tags"]["raysweep.trial_id"]
        if trial == "sweep":
            continue
        assert trial not in found.states, "a trial has two runs"
        found.states[trial] = run["tags"].get("raysweep.state", "")
        assert run["info"]["status"] == _MLFLOW_STATUS[found.states[trial]]
        found.points += [(trial, step, key, shown(float(value))) for key, step, _, value in run["metrics"]]
    return found


def by_otel(collector: Collector) -> Stored:
    """From the spans of attempts, and the newest span of each trial."""
    found = Stored([])
    for span in named(collector, "attempt "):
        trial = values(span)["raysweep.trial_id"]
        for event in span.events:
            row = values(event)
            found.points += [
                (trial, row["iteration"], name, shown(value))
                for name, value in row.items()
                if name != "iteration"
            ]
    for span in sorted(named(collector, "trial "), key=lambda span: span.end_time_unix_nano):
        found.states[values(span)["raysweep.trial_id"]] = values(span)["raysweep.state"]
    return found


def named(collector: Collector, name: str) -> list[Any]:
    """The spans whose names begin so."""
    return [span for span in collector.spans.values() if span.name.startswith(name)]
