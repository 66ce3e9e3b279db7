"""The DAG of the guide for Airflow, as it is printed, on real servers: its code reaches gate and training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.airflow.servers import ROOT, Airflow, wait_until
from tests.jobs.head import Head

CODE = """
import raysweep as rs

def score(config):
    rs.report({"auc": 1 - abs(config["x"] - 0.5)})
"""
SWEEP = """
name: flights
trainable: mine:score
metric: auc
mode: max
num_samples: 3
seed: 1
param_space: {x: {uniform: [0, 1]}}
"""
TRAIN = "name: flights-full\ntrainable: mine:score\n"


def printed() -> str:
    """The first block of Python under the guide's heading *A DAG*."""
    text = (ROOT / "docs" / "guides" / "airflow.md").read_text(encoding="utf-8")
    return text.partition("\n## A DAG\n")[2].partition("```python\n")[2].partition("```")[0]


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_dag_of_the_guide_runs_as_it_is_printed(running_head: Head, tmp_path: Path) -> None:
    files = {
        "dags/nightly.py": printed(),
        "dags/specs/flights.yaml": SWEEP,
        "dags/specs/train.yaml": TRAIN,
        "project/mine.py": CODE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with Airflow(tmp_path / "home", dags=tmp_path / "dags", parallelism=1) as servers:
        servers.add_connection(
            "raysweep_default",
            conn_type="raysweep",
            host="http://127.0.0.1",
            port=running_head.dashboard_port,
            password=running_head.token,
            extra=json.dumps({"storage_path": str(tmp_path / "sweeps")}),
        )
        servers.wait_for_dag("nightly")

        def first() -> str | None:
            runs = servers.call("GET", "/dags/nightly/dagRuns")["dag_runs"]
            return next((str(run["dag_run_id"]) for run in runs), None)

        run_id = wait_until(first, "no scheduled run", 60)
        for task_id in ("sweep", "gate"):
            servers.wait_state("nightly", run_id, task_id, "success", timeout_s=240)
        assert servers.xcom("nightly", run_id, "gate")["promoted"] is True
        servers.wait_state("nightly", run_id, "train", "success", timeout_s=400)
        best = servers.xcom("nightly", run_id, "sweep")["best"]["config"]
        assert servers.xcom("nightly", run_id, "train")["config"]["x"] == pytest.approx(best["x"])
