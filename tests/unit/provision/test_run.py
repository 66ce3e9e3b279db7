"""A sweep with `address="rayjob:…"`: the cluster comes before the job and goes after the outcome."""

from __future__ import annotations

from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import JobStoppedError, SpecChangedError, SpecError
from raysweep.provision import NightCluster
from raysweep.provision.manifest import name_of
from raysweep.specs import RunRequest, SweepSpec
from tests.unit.provision.kube import Kube
from tests.unit.provision.running import KEY, finish_soon


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
