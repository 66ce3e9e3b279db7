"""The files in `deploy/`, as far as they can be checked without a Docker engine or a Kubernetes cluster."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysweep import __version__

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = f"raysweep:{__version__}"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def ray_version() -> str:
    """The one version of Ray that constraints.txt pins, which the requirement in pyproject.toml allows."""
    (pinned,) = re.findall(r"(?m)^ray==([\d.]+)$", (ROOT / "constraints.txt").read_text())
    (wanted,) = [
        each for each in PROJECT["project"]["optional-dependencies"]["ray"] if each.startswith("ray")
    ]
    low, high = re.findall(r"[\d.]+", wanted.partition("]")[2])
    as_numbers = [tuple(int(part) for part in text.split(".")) for text in (low, pinned, high)]
    assert as_numbers[0] <= as_numbers[1] < as_numbers[2]
    return str(pinned)


def dockerfile() -> list[list[str]]:
    """The instructions of the Dockerfile, each split into words."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return loaded


def test_the_image_has_the_ray_of_this_raysweep(ray_version: str) -> None:
    (base,) = [words[1] for words in dockerfile() if words[0] == "FROM"]
    assert base == f"rayproject/ray:{ray_version}-py311"
    requires = PROJECT["project"]["requires-python"]
    assert requires.startswith(">=3.11")


def test_the_image_is_made_of_files_that_are_there() -> None:
    known = {"FROM", "USER", "RUN", "WORKDIR", "COPY", "ENV", "CMD", "ENTRYPOINT", "ARG", "LABEL"}
    instructions = dockerfile()
    assert {words[0] for words in instructions} <= known
    copied = [
        source
        for words in instructions
        if words[0] == "COPY"
        for source in [word for word in words[1:] if not word.startswith("--")][:-1]
    ]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    # What the build of the wheel needs is among them.
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert PROJECT["project"]["dynamic"] == ["readme"]
    made_of = {"pyproject.toml", "hatch_build.py", "README.md"}
    needed = {*made_of, *(name.partition("/")[0] for name in packages)}
    assert needed | set(PROJECT["project"]["license-files"]) <= set(copied)


def test_the_image_does_not_end_as_root() -> None:
    assert [words[1] for words in dockerfile() if words[0] == "USER"][-1] == "ray"


def test_the_kubernetes_cluster_is_whole(ray_version: str) -> None:
    cluster = load("raycluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert spec["rayVersion"] == ray_version
    head, workers = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert workers
    for group in (head, *workers):
        assert isinstance(group["rayStartParams"], dict)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"] == IMAGE
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
        env = {each["name"]: each for each in container["env"]}
        assert env["RAY_AUTH_MODE"]["value"] == "token"
        # The token comes from a secret, and stands in no file.
        assert env["RAY_AUTH_TOKEN"].keys() == {"name", "valueFrom"}
        assert env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"].keys() == {"name", "key"}
    for group in workers:
        assert group["groupName"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    # Drivers run on the head, trials do not.
    assert head["rayStartParams"]["num-cpus"] == "0"
    (container,) = head["template"]["spec"]["containers"]
    assert {port["containerPort"] for port in container["ports"]} >= {6379, 8265}


FIELDS = {
    "spec": {
        *("rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"),
        *("suspend", "managedBy", "headServiceAnnotations", "gcsFaultToleranceOptions", "upgradeStrategy"),
        *("authOptions",),
    },
    "autoscaler": {
        *("version", "idleTimeoutSeconds", "upscalingMode", "image", "imagePullPolicy", "resources"),
        *("env", "envFrom", "volumeMounts", "securityContext"),
    },
    "head": {
        "rayStartParams",
        "template",
        "serviceType",
        "headService",
        "enableIngress",
        "resources",
        "labels",
    },
    "worker": {
        *("groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "rayStartParams", "template"),
        *("idleTimeoutSeconds", "suspend", "scaleStrategy", "resources", "labels"),
    },
}
"""The fields of `ray.io/v1` that the operator has: an unknown one is dropped when the file is applied.

The definitions themselves are in no package; these are those of KubeRay's API reference."""


def test_the_kubernetes_cluster_has_no_field_that_the_operator_drops() -> None:
    spec = load("raycluster.yaml")["spec"]
    assert spec.keys() <= FIELDS["spec"]
    assert spec["autoscalerOptions"].keys() <= FIELDS["autoscaler"]
    assert spec["headGroupSpec"].keys() <= FIELDS["head"]
    for group in spec["workerGroupSpecs"]:
        assert group.keys() <= FIELDS["worker"]


def test_all_containers_of_the_kubernetes_cluster_get_the_token() -> None:
    """The autoscaler's too: it is given nothing of the head's."""
    spec = load("raycluster.yaml")["spec"]
    groups = (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    given = [each["env"] for group in groups for each in group["template"]["spec"]["containers"]]
    for env in (*given, spec["autoscalerOptions"]["env"]):
        found = {each["name"]: each for each in env}
        assert found["RAY_AUTH_MODE"]["value"] == "token"
        assert found["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {
            "name": "raysweep-auth",
            "key": "auth_token",
        }


def test_containers_may_run_as_any_user() -> None:
    """The image's /home/ray holds Python, and only its own user can read it; the laptop's may be another."""
    (run,) = [words for words in dockerfile() if words[0] == "RUN" and "chmod" in words]
    at = run.index("chmod")
    assert run[at : at + 3] == ["chmod", "o+rx", "/home/ray"]
    instructions = [words[:2] for words in dockerfile()]
    assert instructions.index(["USER", "root"]) < [words[0] for words in dockerfile()].index("RUN")
    for service in load("docker-compose.yaml")["services"].values():
        assert service["user"] == "${UID:-1000}:${GID:-1000}"
        assert service["environment"]["HOME"] == "/tmp"


def test_the_laptop_cluster_is_whole() -> None:
    compose = load("docker-compose.yaml")
    services = compose["services"]
    head, worker = services["head"], services["worker"]
    build = head["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    for service in (head, worker):
        assert service["image"] == IMAGE
        assert service["environment"]["RAY_AUTH_MODE"] == "token"
        assert service["environment"]["RAY_AUTH_TOKEN"].startswith("${RAY_AUTH_TOKEN:?")
        (source, target) = service["volumes"][0].rsplit(":", 1)
        assert source == target
        assert service["command"][:2] == ["ray", "start"]
    assert "--head" in head["command"]
    (port,) = [each.partition("=")[2] for each in head["command"] if each.startswith("--port=")]
    assert f"--address=head:{port}" in worker["command"]
    # Reachable from this machine only.
    assert head["ports"] == ["127.0.0.1:8265:8265"]
    assert "--dashboard-port=8265" in head["command"]
    assert worker["depends_on"]["head"]["condition"] == "service_healthy"
    assert head["healthcheck"]["test"][0] == "CMD"


def test_options_of_ray_start_exist() -> None:
    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    services = load("docker-compose.yaml")["services"]
    given = {word.partition("=")[0] for each in services.values() for word in each["command"][2:]}
    cluster = load("raycluster.yaml")["spec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        given |= {f"--{name}" for name in group["rayStartParams"]}
    assert given
    assert given <= known


def test_the_readme_names_the_files() -> None:
    named = set(re.findall(r"(?m)^\| `([\w.-]+)`", (DEPLOY / "README.md").read_text()))
    assert named == {path.name for path in DEPLOY.iterdir()} - {"README.md"}
