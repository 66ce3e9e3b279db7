"""The RayJob that is made of a manifest, and the schema that it is validated by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysweep.errors import SpecError
from raysweep.provision import NightCluster
from raysweep.provision.manifest import NAME_LIMIT, name_of, read_manifest, render
from tests.golden.kuberay import record
from tests.unit.provision.conftest import EXAMPLE, ROOT
from tests.unit.provision.schema import problems_of

KUBERAY = Path(os.environ.get("RAYSWEEP_KUBERAY", ROOT.parent / "shared/kuberay"))


def rendered(document: dict[str, Any]) -> dict[str, Any]:
    night = NightCluster(rayjob="night.yaml")
    return render(document, night, run_id="flights-1", namespace="ml", now=1000.0)


def test_the_example_is_what_the_operator_accepts() -> None:
    job = rendered(read_manifest(str(EXAMPLE)))
    assert problems_of(job) == []
    assert job["metadata"]["labels"] == {"team": "ml", "app.kubernetes.io/managed-by": "raysweep"}
    assert job["spec"]["rayClusterSpec"] == read_manifest(str(EXAMPLE))["spec"]


def test_a_rayjob_keeps_what_it_says() -> None:
    cluster = read_manifest(str(EXAMPLE))["spec"]
    spec = {"rayClusterSpec": cluster, "activeDeadlineSeconds": 3600, "preRunningDeadlineSeconds": 600}
    job = rendered({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec})
    assert problems_of(job) == []
    assert job["spec"]["activeDeadlineSeconds"] == 3600
    assert job["spec"]["preRunningDeadlineSeconds"] == 600


def test_the_validation_finds_what_an_operator_would_refuse() -> None:
    job = rendered(read_manifest(str(EXAMPLE)))
    group = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    group["replica"] = group.pop("replicas")
    group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    del group["groupName"]
    job["spec"]["rayClusterSpec"]["authOptions"]["mode"] = "magic"
    job["spec"]["ttlSecondsAfterFinished"] = "60"
    found = " ".join(problems_of(job))
    for part in ('unknown field "spec.rayClusterSpec.workerGroupSpecs[0].replica"', "cpu", "groupName"):
        assert part in found
    for part in ("'magic'", "must be of type integer"):
        assert part in found


@pytest.mark.skipif(not KUBERAY.is_dir(), reason=f"KubeRay's definitions are not at {KUBERAY}")
def test_the_recorded_schema_is_the_operators_own() -> None:
    assert record.load() == record.read(KUBERAY)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("entrypoint", "python a.py"),
        ("jobId", "a"),
        ("clusterSelector", {"ray.io/cluster": "a"}),
        ("suspend", True),
        ("backoffLimit", 2),
        ("deletionStrategy", {"deletionRules": []}),
        ("runtimeEnvYAML", "pip: [a]"),
        ("shutdownAfterJobFinishes", False),
        ("submissionMode", "InteractiveMode"),
        ("rayClusterSpec", None),
    ],
)
def test_fields_that_would_break_the_lease_are_refused(field: str, value: Any) -> None:
    cluster = read_manifest(str(EXAMPLE))["spec"]
    document = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "spec": {"rayClusterSpec": cluster, field: value},
    }
    with pytest.raises(SpecError) as caught:
        rendered(document)
    assert caught.value.field == f"rayjob.spec.{field}"
    assert "night.yaml" in caught.value.problem
    assert caught.value.fix


def test_a_token_that_the_operator_does_not_know_of_is_refused() -> None:
    """It watches the keeper by the Jobs API: without the token it would never see it."""
    document = yaml.safe_load((ROOT / "deploy/raycluster.yaml").read_text())
    with pytest.raises(SpecError, match="authOptions"):
        rendered(document)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Deployment", "holds Deployment"),
        ("- 1", "holds list"),
        ("kind: RayJob\napiVersion: ray.io/v1alpha1", "apiVersion 'ray.io/v1alpha1'"),
        ("kind: RayJob\napiVersion: ray.io/v1\nspec: 3", "spec of"),
        ("kind: [", ""),
    ],
)
def test_files_that_are_no_manifest_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_manifest(str(path))
    assert words in caught.value.problem
    assert str(path) in str(caught.value)


def test_a_manifest_that_is_not_there_is_named() -> None:
    with pytest.raises(SpecError, match=r"'no\.yaml' cannot be read \(No such file"):
        read_manifest("no.yaml")


@pytest.mark.parametrize("run_id", ["flights-0123456789", "x" * 200, "1-a", "é", "a" * 36 + "-b"])
def test_names_are_accepted_by_kubernetes_and_differ(run_id: str) -> None:
    import re

    name = name_of(run_id)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= NAME_LIMIT
    assert name != name_of(run_id + "1")
    assert name == name_of(run_id)


def test_keys_are_text_as_kubectl_makes_them(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("metadata:", "metadata:\n  annotations: {7: '2', true: b, 0.5: c}", 1)
    path = tmp_path / "night.yaml"
    path.write_text(text)
    job = rendered(read_manifest(str(path)))
    found = job["metadata"]["annotations"]
    assert (found["7"], found["true"], found["0.5"]) == ("2", "b", "c")
    assert problems_of(job) == []


def test_other_objects_of_the_file_are_left_to_kubectl(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(
        f"---\n{EXAMPLE.read_text()}\n---\napiVersion: v1\nkind: ConfigMap\ndata: {{a.py: x}}\n---\n"
    )
    assert read_manifest(str(path)) == read_manifest(str(EXAMPLE))
    assert "apply its ConfigMap with kubectl" in caplog.text


@pytest.mark.parametrize(
    ("text", "found"),
    [("", "holds nothing"), ("kind: ConfigMap\n---\n[1]", "holds ConfigMap, list")],
)
def test_a_file_without_a_cluster_is_refused(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=found):
        read_manifest(str(path))


def test_two_clusters_in_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(f"{EXAMPLE.read_text()}\n---\n{EXAMPLE.read_text()}")
    with pytest.raises(SpecError, match="holds RayCluster, RayCluster; give one"):
        read_manifest(str(path))
