"""`timeout_seconds` of a flow or a task ends the Ray job at once, and not by its lease."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.utilities.timeout import timeout

import raysweep as rs
from raysweep.jobs import ClusterConnection, JobOptions
from raysweep.runs.folder import SweepFolder
from raysweep.specs import RunRequest
from raysweep.step import Place, Step
from raysweep.storage.objects.opening import open_store
from raysweep_prefect.steps import run_step
from tests.unit.jobs.api import Api, serving


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("raysweep.jobs.follow.FIRST_PAUSE_S", 0.01)
    with serving(Api()) as found:
        yield found


def step_on(api: Api, tmp_path: Path) -> Step:
    spec = rs.SweepSpec(
        name="s",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="loss",
        mode="min",
        storage_path=str(tmp_path / "sweeps"),
    )
    connection = ClusterConnection(address=api.address, trust_env=False)
    options = JobOptions(lease_ttl_s=3600)
    return Step(request=RunRequest.of(spec, "k"), place=Place(connection=connection), options=options)


@pytest.mark.parametrize("late_s", [0.0, 1.5], ids=["in the wait", "in the submission"])
def test_a_job_ends_at_the_time_limit_of_its_flow(api: Api, tmp_path: Path, late_s: float) -> None:
    step = step_on(api, tmp_path)
    folder = SweepFolder(open_store(step.request.spec.storage_path), step.request.run.id)
    job_id = f"{step.request.run.id}.1"

    def driver(method: str, path: str) -> None:
        """Ends where its storage has a request for this job; the cluster takes some time to accept a job."""
        if method == "POST" and path == "/api/jobs/":
            time.sleep(late_s)
        asked = folder.read_cancellation()
        if asked is not None and asked.names(1) and job_id in api.jobs:
            api.end(job_id, "SUCCEEDED")

    api.trouble = driver
    with pytest.raises(TimeoutError, match="timed out after 1"), timeout(seconds=1):
        run_step(step)
    asked = folder.read_cancellation()
    assert asked is not None
    assert (asked.number, asked.by) == (1, "Prefect")
    assert "timeout_seconds" in asked.reason
