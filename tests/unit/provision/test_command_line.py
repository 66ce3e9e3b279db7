"""The command line with a cluster for the run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli.process import run
from raysweep.provision import NightCluster
from raysweep.provision.manifest import name_of
from raysweep.specs import RunRequest, SweepSpec
from tests.unit.provision.kube import Kube
from tests.unit.provision.running import KEY, finish_soon, put


@pytest.fixture
def address(kube: Kube, night: NightCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """Through the proxy: it is outside of the cluster."""
    from tests.unit.provision.kube import healthy

    assert night.kubeconfig is not None
    monkeypatch.setenv("KUBECONFIG", night.kubeconfig)
    kube.operator = healthy(kube, service="x-head-svc.ml.svc:8265")
    return f"rayjob:{night.manifest}"


@pytest.fixture
def file(spec: SweepSpec, tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec.to_dict()))
    return str(path)


def test_a_sweep_shows_how_its_cluster_comes_up_and_removes_it(
    kube: Kube, address: str, file: str, spec: SweepSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = finish_soon(kube, spec)
    assert run(["sweep", file, "--key", KEY, "--address", address]) == 0
    ending.join(10)
    shown = capsys.readouterr().err
    name = name_of(RunRequest.of(spec, KEY).run.id)
    assert f"rayjob ml/{name}: created" in shown
    assert f"rayjob ml/{name}: ready" in shown
    assert kube.alive == []


def test_a_detached_sweep_keeps_its_cluster_and_is_followed_by_the_storage(
    kube: Kube, address: str, file: str, spec: SweepSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", file, "--key", KEY, "--address", address, "--detach"]) == 0
    shown = capsys.readouterr().out
    run_id = RunRequest.of(spec, KEY).run.id
    assert f"raysweep attach {run_id} --storage {spec.storage_path}" in shown
    assert "/proxy" not in shown
    assert kube.alive == [name_of(run_id)]


def test_clusters_that_are_left_over_are_listed_and_removed(
    kube: Kube, night: NightCluster, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(kube, night, "old-1", at=time.time() - 2000, jobDeploymentStatus="Initializing")
    put(kube, night, "new-1", jobDeploymentStatus="Initializing")
    assert run(["clusters", night.manifest]) == 0
    shown = capsys.readouterr().out
    assert f"{name_of('old-1')}  old-1  left over, nothing has waited for it" in shown
    assert f"{name_of('new-1')}  new-1  coming up" in shown
    assert run(["clusters", address, "--remove", "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["clusters"]
    assert {row["run_id"]: row["removed"] for row in rows} == {"old-1": True, "new-1": False}
    assert kube.alive == [name_of("new-1")]


def test_a_plan_asks_for_the_nodes_of_a_cluster_that_is_not_up(
    address: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", file, "--address", address]) == 2
    assert "--cluster 8xH100" in capsys.readouterr().err


def test_the_launcher_is_refused_with_the_reason(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", file, "--address", "launcher:cluster.yaml"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "nothing ends the head of Ray's launcher once the driver is gone" in shown
    assert "use rayjob" in shown
