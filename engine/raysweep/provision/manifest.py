"""The `RayJob` that raysweep creates, made of a user's manifest: pure, from data to data.

Whatever happens to raysweep, Kubernetes ends what is made here: the keeper ends when the cluster is idle,
`shutdownAfterJobFinishes` deletes the cluster then, and `activeDeadlineSeconds` ends what never starts.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from raysweep.documents.text import read_all_yaml
from raysweep.errors import SpecError
from raysweep.provision.document import NightCluster
from raysweep.specs.identity import slug

LOG: Final = logging.getLogger("raysweep")
API_VERSION: Final = "ray.io/v1"
MANAGER_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "raysweep"
RUN_ANNOTATION: Final = "raysweep/run"
RENEWED_ANNOTATION: Final = "raysweep/renewed-at"
LEASE_ANNOTATION: Final = "raysweep/lease-s"
MANIFEST_ANNOTATION: Final = "raysweep/manifest"
KEEPER: Final = "python -m raysweep.provision.keeper"
ACTIVE_DEADLINE_S: Final = 24 * 3600
TTL_S: Final = 60
NAME_LIMIT: Final = 47
"""KubeRay accepts no longer name of a RayJob."""

_OWN: Final = {
    "entrypoint": "raysweep sets it",
    "entrypointNumCpus": "raysweep's keeper runs on the head",
    "entrypointNumGpus": "raysweep's keeper runs on the head",
    "entrypointResources": "raysweep's keeper runs on the head",
    "runtimeEnvYAML": "give job options: working_dir, runtime_env",
    "jobId": "raysweep submits its own jobs",
    "clusterSelector": "give the address of that cluster instead",
    "deletionStrategy": "raysweep and shutdownAfterJobFinishes delete the cluster",
    "backoffLimit": "raysweep brings up a new cluster where one is lost",
    "suspend": "only Kueue may set it, by the label kueue.x-k8s.io/queue-name",
}
"""Fields of a RayJob that a manifest must not set, and why."""


def name_of(run_id: str) -> str:
    """The name of a run's RayJob: the same for every try of the run."""
    mark = hashlib.blake2b(run_id.encode(), digest_size=5).hexdigest()
    stem = slug(run_id)[: NAME_LIMIT - len("rs--") - len(mark)].strip("-")
    return f"rs-{stem}-{mark}" if stem else f"rs-{mark}"


def read_manifest(path: str) -> dict[str, Any]:
    """The RayCluster or RayJob of a manifest's file, with text as keys, as kubectl reads it.

    Other objects in the file are left to kubectl; a line in the log names them. Raises: SpecError.
    """
    try:
        text = Path(path).expanduser().read_bytes()
    except OSError as error:
        problem = f"{path!r} cannot be read ({error.strerror or error})"
        raise SpecError("rayjob", problem, "check the path of the manifest") from None
    document = _choose([_with_text_keys(each) for each in read_all_yaml(text, path)], path)
    if document.get("apiVersion") != API_VERSION:
        problem = f"{path} has apiVersion {document.get('apiVersion')!r}"
        raise SpecError("rayjob", problem, f"write apiVersion: {API_VERSION}")
    for name in ("metadata", "spec"):
        if not isinstance(document.get(name, {}), dict):
            raise SpecError("rayjob", f"{name} of {path} is not a mapping", "write its fields")
    return document


def _choose(documents: Sequence[Any], path: str) -> dict[str, Any]:
    """The one RayCluster or RayJob."""
    kinds = [each.get("kind") if isinstance(each, dict) else type(each).__name__ for each in documents]
    chosen = [each for each, kind in zip(documents, kinds, strict=True) if kind in ("RayCluster", "RayJob")]
    if len(chosen) != 1:
        found = ", ".join(map(str, kinds)) or "nothing"
        raise SpecError("rayjob", f"{path} holds {found}", "give one RayCluster or RayJob")
    others = [str(kind) for kind in kinds if kind not in ("RayCluster", "RayJob")]
    if others:
        LOG.warning(
            "%s: apply its %s with kubectl; raysweep creates the RayJob only", path, ", ".join(others)
        )
    return dict(chosen[0])


def _with_text_keys(value: Any) -> Any:
    """The same with text as keys, as JSON has: `{1: a}` is `{"1": a}`, and `{true: a}` `{"true": a}`."""
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key if isinstance(key, str) else orjson.dumps(key).decode(): _with_text_keys(item)
        for key, item in value.items()
    }


def namespace_of(document: Mapping[str, Any], night: NightCluster, default: str) -> str:
    """The namespace that the cluster belongs to."""
    return str(night.namespace or (document.get("metadata") or {}).get("namespace") or default)


def render(
    document: Mapping[str, Any], night: NightCluster, *, run_id: str, namespace: str, now: float
) -> dict[str, Any]:
    """The RayJob that brings up the cluster of a manifest and keeps it.

    Args:
        document: What `read_manifest` returned.
        night: What the user says of the cluster.
        run_id: The run that the cluster is for.
        namespace: As `namespace_of`.
        now: The API server's time, in UTC seconds: the first renewal of the lease.

    Raises: SpecError for fields that raysweep sets itself.
    """
    given = copy.deepcopy(dict(document))
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    if given["kind"] == "RayCluster":
        spec = {"rayClusterSpec": spec}
    _check(spec, night.manifest)
    spec |= {
        "entrypoint": shlex.join([*shlex.split(KEEPER), "--idle-s", f"{night.idle_s:g}"]),
        "shutdownAfterJobFinishes": True,
    }
    spec.setdefault("ttlSecondsAfterFinished", TTL_S)
    spec.setdefault("activeDeadlineSeconds", ACTIVE_DEADLINE_S)
    return {
        "apiVersion": API_VERSION,
        "kind": "RayJob",
        "metadata": {
            "name": name_of(run_id),
            "namespace": namespace,
            "labels": {**(metadata.get("labels") or {}), MANAGER_LABEL: MANAGER},
            "annotations": {
                **(metadata.get("annotations") or {}),
                RUN_ANNOTATION: run_id,
                MANIFEST_ANNOTATION: digest_of_manifest(document),
                LEASE_ANNOTATION: f"{night.idle_s:g}",
                RENEWED_ANNOTATION: f"{now:.0f}",
            },
        },
        "spec": spec,
    }


def digest_of_manifest(document: Mapping[str, Any]) -> str:
    """The digest of the manifest that a cluster was brought up from."""
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _check(spec: dict[str, Any], path: str) -> None:
    for name, why in _OWN.items():
        if spec.get(name):
            raise SpecError(f"rayjob.spec.{name}", f"is set in {path}; {why}", "leave it out")
        spec.pop(name, None)
    if spec.get("shutdownAfterJobFinishes") is False:
        problem = f"is false in {path}: the cluster would never end"
        raise SpecError("rayjob.spec.shutdownAfterJobFinishes", problem, "leave it out")
    if spec.get("submissionMode") == "InteractiveMode":
        problem = f"is InteractiveMode in {path}: no one would submit the keeper"
        raise SpecError("rayjob.spec.submissionMode", problem, "leave it out, or use HTTPMode or SidecarMode")
    cluster = spec.get("rayClusterSpec")
    if not isinstance(cluster, dict):
        fix = "write rayClusterSpec: {headGroupSpec: …}"
        raise SpecError("rayjob.spec.rayClusterSpec", f"is missing in {path}", fix)
    if _sets_token(cluster) and (cluster.get("authOptions") or {}).get("mode") != "token":
        problem = f"{path} sets RAY_AUTH_MODE=token, which the operator does not know of"
        fix = "write authOptions: {mode: token} under the cluster's spec, and leave the variables out"
        raise SpecError("rayjob.spec.rayClusterSpec.authOptions", problem, fix)


def _sets_token(cluster: Mapping[str, Any]) -> bool:
    """True if a container sets Ray's token by itself: the operator, which watches the keeper, lacks it."""
    template = (cluster.get("headGroupSpec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return any(
        variable.get("name") == "RAY_AUTH_MODE" and variable.get("value") == "token"
        for container in containers
        for variable in container.get("env") or ()
    )
