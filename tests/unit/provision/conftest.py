"""A Kubernetes API server with the head of a Ray cluster, a kubeconfig, and a manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysweep.provision import NightCluster
from raysweep.specs import SweepSpec
from tests.unit.jobs.api import Api, serving
from tests.unit.provision.kube import NAMESPACE, Kube, healthy, serving_kube

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy/night.yaml"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("raysweep.provision.night.PAUSE_S", 0.005)
    monkeypatch.setattr("raysweep.provision.api.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("raysweep.jobs.client.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("raysweep.jobs.follow.FIRST_PAUSE_S", 0.01)


@pytest.fixture
def kube() -> Iterator[Kube]:
    with serving(Api()) as head, serving_kube(Kube(head=head)) as kube:
        kube.operator = healthy(kube)
        yield kube


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The example without a token: the loopback head asks for none."""
    document = yaml.safe_load(EXAMPLE.read_text())
    del document["spec"]["authOptions"]
    path = tmp_path / "night.yaml"
    path.write_text(json.dumps(document))
    return path


def write_config(path: Path, server: str, **user: Any) -> Path:
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def night(kube: Kube, manifest: Path, tmp_path: Path) -> NightCluster:
    config = write_config(tmp_path / "kubeconfig", kube.address, token="t")
    return NightCluster(rayjob=manifest, kubeconfig=config, reach="service", ready_s=20)


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
