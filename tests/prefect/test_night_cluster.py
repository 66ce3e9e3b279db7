"""A cluster that is brought up for a run, from Prefect: by an address, and by a block."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from raysweep.jobs.attach import RunningJob
from raysweep.specs import RunRequest, SweepSpec
from raysweep_prefect.blocks import RayCluster, SweepJob
from raysweep_prefect.clusters import find_target
from tests.unit.jobs.api import Api, serving
from tests.unit.jobs.attaching import finish
from tests.unit.provision.conftest import EXAMPLE, write_config
from tests.unit.provision.kube import Kube, healthy, serving_kube

KEY = "2026-11-27"


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kube]:
    monkeypatch.setattr("raysweep.provision.night.PAUSE_S", 0.005)
    monkeypatch.setattr("raysweep.jobs.attach.SETTLE_S", 0.05)
    monkeypatch.setattr("raysweep.jobs.follow.FIRST_PAUSE_S", 0.01)
    with serving(Api()) as head, serving_kube(Kube(head=head)) as kube:
        kube.operator = healthy(kube, service="x-head-svc.ml.svc:8265")
        monkeypatch.setenv("KUBECONFIG", str(write_config(tmp_path / "kubeconfig", kube.address, token="t")))
        yield kube


@pytest.fixture
def address(tmp_path: Path) -> str:
    document = yaml.safe_load(EXAMPLE.read_text())
    del document["spec"]["authOptions"]
    (tmp_path / "night.yaml").write_text(json.dumps(document))
    return f"rayjob:{tmp_path / 'night.yaml'}"


def test_an_address_and_a_block_name_a_cluster_for_the_run(address: str) -> None:
    for given in (address, {"rayjob": "night.yaml"}, RayCluster(address=address)):
        target = find_target(given)
        assert target.is_job
        assert target.night is not None
        assert target.connection is None
        assert target.renewed() is None


def test_a_block_brings_up_its_cluster_and_removes_it(kube: Kube, address: str, tmp_path: Path) -> None:
    spec = SweepSpec(
        name="flights",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="auc",
        mode="max",
        num_samples=3,
        storage_path=str(tmp_path / "sweeps"),
    )
    block = SweepJob(spec=spec.to_dict(), cluster=RayCluster(address=address), key=KEY)
    run = block.trigger(_sync=True)
    assert kube.alive
    ending = threading.Thread(target=end, args=(kube, spec, run.job), daemon=True)
    ending.start()
    outcome = run.fetch_result(_sync=True)
    ending.join(10)
    assert outcome.status == "completed"
    assert kube.alive == []
    assert kube._uids == 1

    again = block.trigger(_sync=True)
    assert again.fetch_result(_sync=True).status == "completed"
    assert kube._uids == 1
    assert RunRequest.of(spec, KEY).run.id == again.job.run_id


def end(kube: Kube, spec: SweepSpec, job: RunningJob) -> None:
    time.sleep(0.2)
    finish(job, spec, best=None, trials=())
    kube.head.end(job.job_id, "SUCCEEDED", code=0)
