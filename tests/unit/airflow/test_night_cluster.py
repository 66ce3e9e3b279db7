"""A task whose cluster is brought up for it: created, followed by the trigger, removed after the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome
from raysweep.provision.manifest import name_of
from raysweep.runs.folder import SweepFolder
from raysweep.step import End
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import work
from raysweep_airflow.triggers import SweepTrigger
from tests.unit.airflow.tasks import Task, Ti
from tests.unit.jobs.api import Api, serving
from tests.unit.provision.conftest import EXAMPLE, write_config
from tests.unit.provision.kube import Kube, healthy, serving_kube


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    monkeypatch.setattr("raysweep.provision.night.PAUSE_S", 0.005)
    monkeypatch.setattr("raysweep.jobs.attach.SETTLE_S", 0.05)
    with serving(Api()) as head, serving_kube(Kube(head=head)) as kube:
        kube.operator = healthy(kube)
        yield kube


@pytest.fixture
def address(kube: Kube, tmp_path: Path) -> dict[str, Any]:
    document = yaml.safe_load(EXAMPLE.read_text())
    del document["spec"]["authOptions"]
    (tmp_path / "night.yaml").write_text(json.dumps(document))
    config = write_config(tmp_path / "kubeconfig", kube.address, token="t")
    return {"rayjob": str(tmp_path / "night.yaml"), "kubeconfig": str(config), "reach": "service"}


@pytest.fixture
def task(kube: Kube, tmp_path: Path) -> Task:
    return Task(kube.head, tmp_path / "sweeps")


def try_of(task: Task) -> work.Try:
    context = {"ti": Ti(), "task_state_store": task.store, "outlet_events": {}}
    dag = task.operator.get_dag()
    return work.Try(task.operator, context | {"dag": dag})


def test_a_task_brings_up_its_cluster_and_removes_it(task: Task, kube: Kube, address: dict[str, Any]) -> None:
    given = task.deferred(address=address)
    trigger = SweepTrigger(**json.loads(json.dumps(given)))
    run_id = trigger.job.run_id
    assert kube.alive == [name_of(run_id)]
    assert asyncio.run(trigger._connect()).address == kube.head.address

    # The next try, as after a worker that died, adopts it.
    task.deferred(address=address)
    assert kube._uids == 1

    folder = SweepFolder(open_store(str(task.storage)), run_id)
    outcome = SweepOutcome(
        sweep_id=run_id,
        name="flights",
        status="cancelled",
        metric="loss",
        mode="min",
        started_at=0,
        ended_at=1,
    )
    folder.write_outcome_if_absent(outcome)
    kube.head.end(trigger.job.job_id, "SUCCEEDED", code=0)
    event = End(job=trigger.job, how="ended").to_dict()
    with pytest.raises(Exception, match="cancelled"):
        try_of(task).complete(event)
    assert kube.alive == []


def test_a_cluster_that_is_lost_meanwhile_says_how(task: Task, kube: Kube, address: dict[str, Any]) -> None:
    from raysweep.errors import ClusterLostError, ClusterUnreachableError

    trigger = SweepTrigger(**task.deferred(address=address))
    kube.jobs[name_of(trigger.job.run_id)]["status"] = {
        "jobDeploymentStatus": "Failed",
        "reason": "DeadlineExceeded",
    }
    event = End.of_error(trigger.job, ClusterUnreachableError(kube.head.address, "does not answer")).to_dict()
    with pytest.raises(ClusterLostError, match="Failed, DeadlineExceeded"):
        try_of(task).complete(event)


def test_a_manifest_that_is_not_beside_the_dag_is_named(task: Task) -> None:
    with pytest.raises(SpecError, match=r"no file 'no-such\.yaml'"):
        task.run(address="rayjob:no-such.yaml")
