"""The autoscaler as `deploy/raycluster.yaml` gives it: Ray's own loop, beside a head that asks for a token.

What KubeRay does is done here by hand: the container's environment is the manifest's, and the operator's own
variables; the API of Kubernetes is `tests/jobs/kubernetes.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import raysweep as rs
from raysweep.jobs import JobRequest
from tests.engine.conftest import wait_for
from tests.jobs.cluster import Cluster
from tests.jobs.head import ROOT, Head
from tests.jobs.kubernetes import HEAD_POD, NAMESPACE, Kubernetes, serving
from tests.unit.jobs.api import make_certificate

pytestmark = [pytest.mark.ray, pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(900)]
RAY = str(Path(sys.executable).with_name("ray"))
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "deploy/raycluster.yaml").read_text())


def environment(given: list[dict[str, Any]], token: str) -> dict[str, str]:
    """What a container sees of such an `env`; the secret holds the token."""
    found = {}
    for each in given:
        secret = each.get("valueFrom", {}).get("secretKeyRef", {})
        assert secret.get("key", "auth_token") == "auth_token"
        found[each["name"]] = token if secret else each["value"]
    return found


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """As the operator starts it: no CPUs, no autoscaler of its own, the second version of it."""
    own = {
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_POD,
        "RAY_NODE_TYPE_NAME": "headgroup",
    }
    made = Head(num_cpus=0, environment=own)
    made._options.append("--no-monitor")
    with made:
        yield made


@contextmanager
def autoscaling(
    kubernetes: Kubernetes, head: Head, env: dict[str, str], certificate: Path, log: Path
) -> Iterator[None]:
    """The autoscaler's container: its command and the operator's variables, and `env` of the manifest."""
    own = {
        "KUBERAY_CRD_VER": "v1",
        "RAY_HEAD_POD_NAME": HEAD_POD,
        "RAY_enable_autoscaler_v2": "1",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT_HTTPS": str(kubernetes.port),
        # In place of the service account's files, which are at a fixed path.
        **{f"RAY_KUBERAY_{name}_PATH": str(certificate) for name in ("CLIENT_CERT", "CLIENT_KEY", "CA_CERT")},
    }
    plain = {"PATH": f"{Path(RAY).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(log.parent)}
    command = [RAY, "kuberay-autoscaler", "--cluster-name", kubernetes.cluster["metadata"]["name"]]
    command += ["--cluster-namespace", NAMESPACE, "--gcs-address", head.gcs_address]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=plain | own | env, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_the_cluster_grows_to_what_the_guide_says(
    head: Head, make_spec: Callable[..., rs.SweepSpec], tmp_path: Path
) -> None:
    """A sweep that asks for twenty trials at once gets the ten nodes that the manifest allows."""
    certificate = make_certificate(tmp_path)
    env = environment(MANIFEST["spec"]["autoscalerOptions"]["env"], head.token)
    log = tmp_path / "autoscaler.log"
    (group,) = MANIFEST["spec"]["workerGroupSpecs"]
    spec = make_spec(
        "steps", {"steps": 1}, num_samples=20, autoscaled=True, max_concurrent_trials=20, resources={"cpu": 4}
    )
    cluster = Cluster(head)
    with serving(MANIFEST, certificate) as kubernetes, autoscaling(kubernetes, head, env, certificate, log):
        assert kubernetes.replicas() == group["minReplicas"] == 1
        job = cluster.submit("grow.1", JobRequest(kind="sweep", key="k", spec=spec.to_dict()))
        try:
            wait_for(lambda: kubernetes.replicas() == group["maxReplicas"], 150)
        finally:
            said = log.read_text()
            print(said[-4000:], kubernetes.patches, cluster.logs(job)[-2000:])
            cluster.ask(lambda client: client.stop(job))
    assert "The Ray head is not ready" not in said
    # Step by step or at once, and never more than the manifest says.
    sizes = [each["value"] for each in kubernetes.patches if each["path"].endswith("/replicas")]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 10


def test_without_the_token_the_head_is_never_healthy(head: Head) -> None:
    """What the autoscaler waits for: the check has to be able to fail, or the test above shows nothing."""
    command = [RAY, "health-check", "--address", head.gcs_address, "--skip-version-check"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env = environment(MANIFEST["spec"]["autoscalerOptions"]["env"], head.token)
    for given, code in ((env, 0), ({}, 1), (env | {"RAY_AUTH_TOKEN": "of another cluster's length"}, 1)):
        done = subprocess.run(
            command, env=clean | given, check=False, capture_output=True, text=True, timeout=60
        )
        assert bool(done.returncode) == bool(code), (given.keys(), done.stdout, done.stderr)
