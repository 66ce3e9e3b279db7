"""Runs on a cluster by their names: what the jobs say of themselves is enough."""

from __future__ import annotations

import pytest

from raysweep.cli.remote import _named
from raysweep.jobs.wire import JobInfo
from raysweep.specs.identity import RunId


def job(name: str, key: str, started_at: float, number: int = 1) -> JobInfo:
    run = RunId(kind="sweep", name=name, key=key).id
    return JobInfo(
        job_id=f"{run}.{number}",
        status="RUNNING",
        metadata={"raysweep_sweep_id": run, "raysweep_key": key},
        started_at=started_at,
    )


FIRST, SECOND = job("churn", "2026-11-24", 1.0), job("churn", "dag/2026-11-25", 2.0)
AGAIN, GATE = job("churn", "2026-11-24", 3.0, 2), job("churn-gate", "2026-11-25/gate-0", 4.0)
JOBS = [FIRST, SECOND, AGAIN, GATE]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("churn@latest", [FIRST, AGAIN]),
        ("churn@2026-11-25", [SECOND]),
        ("churn@2026-11-24", [FIRST, AGAIN]),
        ("churn@dag/2026-11-25", [SECOND]),
        ("churn", [FIRST, SECOND, AGAIN]),
        ("churn-g", [GATE]),
        ("churn@2026-11-26", []),
        ("fraud@latest", []),
    ],
)
def test_a_name_means_the_runs_that_it_means_in_a_storage(name: str, found: list[JobInfo]) -> None:
    assert _named(JOBS, name) == found
