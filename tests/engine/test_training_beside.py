"""A training has callbacks, stored logs and a page from the sweep that it is."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import raysweep as rs
from raysweep.cli.commands.logs import Wanted, show_logs
from raysweep.hooks import Callback
from raysweep.pages.dashboard.runs import Runs
from raysweep.pages.write import write_report
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.logs import list_logs, read_log
from raysweep.storage.objects.opening import open_store
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


def read_numbers(column: dict[str, str]) -> list[float]:
    """A column of a page's document."""
    return list(np.frombuffer(base64.b64decode(column["data"]), column["type"]))


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


@pytest.mark.usefixtures("ray_cluster")
def test_a_training_has_a_page_with_curve_state_and_checkpoint(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    spec = make_spec(config={"steps": 3, "start": 16.0}, scaling={"num_workers": 2})
    outcome = rs.run_training(spec, key="k")

    runs = Runs(open_store(spec.storage_path))
    document = orjson.loads(runs.run(outcome.run_id).body)["document"]
    facts = document["sweep"]
    assert (facts["status"], facts["trainable"], facts["key"]) == ("completed", "examples.quick:steps", "k")
    assert f"model: {outcome.model_line}" in facts["notes"]
    assert facts["usage"] == (outcome.usage and outcome.usage.model_dump())
    assert document["verdict"].startswith("The training completed after ")
    assert [each["name"] for each in document["metrics"]] == ["loss", "step"]
    assert [each["name"] for each in document["params"]] == ["steps", "start"]
    assert read_numbers(document["curves"]["values"]["loss"]) == [8.0, 4.0, 2.0], "a point a report"
    assert orjson.loads(document["spec"])["framework"] == "data_parallel"
    with runs.checkpoint(outcome.run_id, 0) as folder:
        assert orjson.loads((folder / "at.json").read_bytes()) == outcome.metrics
    runs.close()
    page = write_report(outcome.run_id, tmp_path, storage=spec.storage_path)
    assert "The training completed after " in page.read_text()


def prints(config: dict[str, Any]) -> None:
    """Each worker prints; rank 0 fails in its first start."""
    context = rs.get_context()
    print(f"step of rank {context.rank}")
    os.write(2, b"from C\n")
    if context.rank == 0 and not Path(config["mark"]).exists():
        Path(config["mark"]).touch()
        raise RuntimeError("once")
    rs.report({"loss": 1.0})


@pytest.mark.usefixtures("ray_cluster")
def test_the_output_of_rank_0_is_stored_for_each_start_of_the_workers(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec(
        prints,
        config={"mark": str(tmp_path / "mark")},
        scaling={"num_workers": 2},
        failure={"max_failures": 1},
    )
    outcome = rs.run_training(spec, key="k")
    folder = SweepFolder(open_store(spec.storage_path), outcome.run_id)
    first, second = (read_log(folder, log) for log in list_logs(folder))
    assert first is not None
    assert second is not None
    failed, done = first.encode().decode(), second.encode().decode()
    assert done.startswith("step of rank 0\nfrom C\n")
    assert done.count("step of rank 0") == 1, "Ray Train writes a print a second time"
    assert failed.startswith("step of rank 0\nfrom C\n")
    assert "RuntimeError: once" in failed
    capfd.readouterr()
    wanted = Wanted(trial=0, attempt=1, is_followed=False, is_json=False)
    assert show_logs("t", spec.storage_path, None, wanted) == 0
    assert capfd.readouterr().out == failed
    runs = Runs(open_store(spec.storage_path))
    assert orjson.loads(runs.log(outcome.run_id, 0, None).body)["text"] == done
    runs.close()
