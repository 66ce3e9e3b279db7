"""The gate in the flow: what was not promoted is not trained, and Prefect says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.storage.objects.opening import open_store
from tests.prefect.night_script import run_nights

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


# Two nights in one process: one server and one Ray serve both.
SCRIPT = """
import json, sys
from raysweep.cluster.ray.connection import sharing
from devtools.prefect.embedded import prefect_server
from raysweep_prefect.flows import nightly_sweep

def states(flow_run_id):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(flow_run_filter=FlowRunFilter(id={"any_": [flow_run_id]}))
    return {run.task_key.split("-")[0]: shown(run.state) for run in runs}

def report():
    from prefect.client.orchestration import get_client
    with get_client(sync_client=True) as client:
        reports = [each for each in client.read_artifacts() if each.key == "raysweep-night-report"]
    return " ".join(str(each.data) for each in reports)

def shown(state):
    return [state.type.value, state.name, state.message]

given = json.loads(sys.argv[1])
with prefect_server(), sharing():
    for key in ("2026-11-21", "2026-11-22"):
        state = nightly_sweep(**given, key=key, return_state=True)
        night = state.result()
        found = {"skipped": night.skipped, "why": night.sweep.why, "trained": night.train is not None}
        found["report"] = report()
        print("NIGHT", json.dumps(found | {"states": states(state.state_details.flow_run_id)}))
"""


def test_two_nights_of_the_same_search(tmp_path: Path) -> None:
    """The first promotes and trains; the second finds the same, which is no gain, and trains nothing."""
    log = tmp_path / "log"
    log.touch()
    sweep: dict[str, Any] = {
        "name": "night",
        "trainable": "tests.prefect.trainables:slow_steps",
        "metric": "loss",
        "mode": "min",
        "num_samples": 2,
        "seed": 5,
        "warm_start": "champion",
        "param_space": {"x": {"uniform": [1, 2]}, "steps": 2, "log": str(log)},
    }
    train = {"name": "full", "trainable": "tests.prefect.trainables:train", "scaling": {"num_workers": 1}}
    night = {"spec": sweep, "train_spec": train, "storage_path": str(tmp_path / "out")}
    night["gate_spec"] = {"confirm_top_k": 1, "seeds": 2, "test": "mean"}
    first, second = run_nights(SCRIPT, tmp_path, night)
    assert "there was no champion" in first["why"]
    assert first["states"]["told_gate"][2].startswith("promoted: loss ")
    assert second["states"]["told_gate"][2].startswith("not promoted: ")
    assert "promoted" in first["report"]
    assert first["trained"]
    assert first["states"]["train"][:2] == ["COMPLETED", "Completed"]
    assert not second["trained"]
    assert second["skipped"].startswith("training skipped: ")
    assert "a better one is required" in second["skipped"] or "no candidate" in second["skipped"]
    # Prefect shows the task as completed, named Skipped, and why.
    assert second["states"]["train"] == ["COMPLETED", "Skipped", second["skipped"]]
    line = Line(name="night", metric="loss", mode="min")
    nights = read_champion(open_store(tmp_path / "out"), line).history
    assert [each.promoted for each in nights] == [True, False]
