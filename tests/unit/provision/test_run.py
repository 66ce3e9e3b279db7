"""A sweep with `address="rayjob:…"`: the cluster comes before the job and goes after the outcome."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import JobStoppedError, SpecChangedError, SpecError
from raysweep.jobs.attach import RunningJob
from raysweep.provision import NightCluster
from raysweep.provision.manifest import name_of
from raysweep.specs import RunRequest, SweepSpec
from tests.unit.jobs.attaching import finish
from tests.unit.provision.kube import Kube

KEY = "2026-11-27"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepSpec:
    monkeypatch.setattr("raysweep.jobs.attach.SETTLE_S", 0.05)
    return SweepSpec(
        name="Flights",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="auc",
        mode="max",
        num_samples=3,
        storage_path=str(tmp_path / "sweeps"),
    )


def finish_soon(kube: Kube, spec: SweepSpec, **how: Any) -> threading.Thread:
    """The driver of the first job ends: the head's jobs are only names."""

    def run() -> None:
        for _ in range(1000):
            if kube.head.jobs:
                break
            time.sleep(0.01)
        (job_id,) = kube.head.jobs
        request = RunRequest.of(spec, KEY)
        job = RunningJob(
            address="",
            kind="sweep",
            run_id=request.run.id,
            key=KEY,
            storage_path=spec.storage_path,
            job_id=job_id,
            number=1,
            how="submitted",
        )
        if how.get("stopped"):
            kube.head.end(job_id, "STOPPED")
            return
        finish(job, spec)
        kube.head.end(job_id, "SUCCEEDED", code=0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def name(spec: SweepSpec) -> str:
    return name_of(RunRequest.of(spec, KEY).run.id)


def test_a_sweep_brings_up_its_cluster_and_removes_it(
    kube: Kube, night: NightCluster, spec: SweepSpec
) -> None:
    ending = finish_soon(kube, spec)
    outcome = rs.run_sweep(spec, key=KEY, address=night, progress=False)
    ending.join(10)
    assert outcome.status == "completed"
    assert kube._uids == 1
    assert kube.alive == []
    assert [each["name"] for each in kube.deletes] == [name(spec)]


def test_an_outcome_that_is_there_needs_no_cluster(kube: Kube, night: NightCluster, spec: SweepSpec) -> None:
    ending = finish_soon(kube, spec)
    rs.run_sweep(spec, key=KEY, address=night, progress=False)
    ending.join(10)
    asked = len(kube.calls)
    assert rs.run_sweep(spec, key=KEY, address=night, progress=False).status == "completed"
    assert len(kube.calls) == asked


def test_a_changed_spec_brings_up_no_cluster(kube: Kube, night: NightCluster, spec: SweepSpec) -> None:
    ending = finish_soon(kube, spec)
    rs.run_sweep(spec, key=KEY, address=night, progress=False)
    ending.join(10)
    asked = len(kube.calls)
    with pytest.raises(SpecChangedError):
        rs.run_sweep(spec.replace(mode="min"), key=KEY, address=night, progress=False)
    assert len(kube.calls) == asked


def test_a_job_that_a_person_stopped_ends_its_cluster(
    kube: Kube, night: NightCluster, spec: SweepSpec
) -> None:
    ending = finish_soon(kube, spec, stopped=True)
    with pytest.raises(JobStoppedError):
        rs.run_sweep(spec, key=KEY, address=night, progress=False)
    ending.join(10)
    assert kube.alive == []


def test_a_pipeline_has_one_cluster_until_its_end(kube: Kube, night: NightCluster, spec: SweepSpec) -> None:
    """The sweep's, under the sweep's name; removed once."""
    from raysweep.provision.lifetime import Night, shared

    with shared(night, RunRequest.of(spec, KEY).run.id) as address:
        assert isinstance(address, Night)
        ending = finish_soon(kube, spec)
        rs.run_sweep(spec, key=KEY, address=address, progress=False)
        ending.join(10)
        assert kube.alive == [name(spec)]
    assert kube.alive == []
    assert kube._uids == 1


def test_the_address_may_be_text_or_a_mapping(night: NightCluster) -> None:
    assert NightCluster.of("rayjob:night.yaml") == NightCluster(rayjob="night.yaml")
    given = {"rayjob": "night.yaml", "context": "prod", "idle_s": 300}
    assert NightCluster.of(given) == NightCluster(rayjob="night.yaml", context="prod", idle_s=300)


@pytest.mark.parametrize("address", [None, "auto", "local", "head:6379", "rayjob:6379", "http://head:8265"])
def test_other_addresses_are_none_of_its(address: str | None) -> None:
    assert NightCluster.of(address) is None


@pytest.mark.parametrize(
    ("address", "field", "words"),
    [
        ("launcher:cluster.yaml", "address.launcher", "not supported"),
        ({"rayjob": ""}, "address.rayjob", "names no manifest"),
        ("rayjob:", "address.rayjob", "names no manifest"),
        ({"rayjob": "a", "idle": 3}, "address.idle", ""),
        ({"rayjob": "a", "idle_s": 3}, "address.idle_s", ""),
    ],
)
def test_what_cannot_be_is_one_line_with_the_field(address: Any, field: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        NightCluster.of(address)
    assert caught.value.field == field
    assert words in caught.value.problem
    assert caught.value.fix
