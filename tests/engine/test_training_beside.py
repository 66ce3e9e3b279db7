"""What a training has from the sweep that it is: callbacks, stored logs, a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.hooks import Callback
from tests.engine.trainings import (
    actors_of_earlier_tests,  # noqa: F401  a fixture for each test
    spec_maker,
)

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., rs.TrainSpec]:
    return spec_maker(tmp_path)


class Writes(Callback):
    """Writes each event as a line of JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _write(self, event: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"what": type(event).__name__, **asdict(event)}) + "\n")

    on_sweep_start = on_trial_start = on_report = on_checkpoint = on_trial_end = on_sweep_end = _write


@pytest.mark.usefixtures("ray_cluster")
def test_a_callback_gets_the_events_of_a_training(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    path, config = tmp_path / "events", {"steps": 3, "start": 16.0}
    spec = make_spec(config=config, callbacks=[Writes(path), "tensorboard"])
    outcome = rs.run_training(spec, key="k")

    events = [json.loads(line) for line in path.read_text().splitlines()]
    whats = [each["what"] for each in events]
    assert (whats[:2], whats[-2:]) == (["SweepStart", "TrialStart"], ["TrialEnd", "SweepEnd"])
    assert (events[0]["sweep_id"], events[0]["spec"]["config"]) == (outcome.run_id, config)
    reports = [each["metrics"] for each in events if each["what"] == "Report"]
    assert reports == [dict(each.metrics) for each in outcome.history], "without what the engine adds"
    saved = [each["uri"] for each in events if each["what"] == "CheckpointSaved"]
    assert saved[-1] == outcome.checkpoint_uri
    assert (events[-2]["state"], events[-2]["metrics"], events[-2]["reports"]) == (
        "completed",
        outcome.metrics,
        3,
    )
    assert list((Path(outcome.uri) / "tensorboard").rglob("events.*"))
