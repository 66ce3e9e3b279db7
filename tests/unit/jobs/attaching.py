"""What tests of jobs against a loopback API have in common."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from raysweep.jobs import JobOptions, RunningJob, submit_or_attach, wait
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.jobs.api import Api

SECRET = "a-password-of-the-trials"
KEY = "2026-11-21"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("raysweep.jobs.client.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("raysweep.jobs.attach.SETTLE_S", 0.05)
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 0.3)
    monkeypatch.setattr("raysweep.jobs.follow.FIRST_PAUSE_S", 0.01)


@pytest.fixture
def spec(tmp_path: Path) -> SweepSpec:
    return SweepSpec(
        name="Flights",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="auc",
        mode="max",
        num_samples=3,
        storage_path=str(tmp_path / "sweeps"),
    )


def folder_of(job: RunningJob) -> SweepFolder:
    return SweepFolder(open_store(job.storage_path), job.run_id)


def finish(job: RunningJob, spec: SweepSpec, status: Any = "completed", **fields: Any) -> SweepOutcome:
    outcome = SweepOutcome(
        sweep_id=job.run_id,
        name=spec.name,
        status=status,
        metric="auc",
        mode="max",
        started_at=0,
        ended_at=1,
        spec_digest=spec.digest(),
        **fields,
    )
    folder = folder_of(job)
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key=job.key, seed=0, spec=spec.to_dict()))
    folder.write_outcome_if_absent(outcome)
    found = folder.read_outcome()
    assert found is not None
    return found


def submit(api: Api, spec: SweepSpec | TrainSpec, **options: Any) -> RunningJob:
    return asyncio.run(submit_or_attach(spec, to=api.address, key=KEY, options=JobOptions(**options)))


def waited(api: Api, job: RunningJob, **options: Any) -> Any:
    return asyncio.run(wait(job, to=api.address, **options))
