"""The document of a cluster that is brought up for a run: `{rayjob: night.yaml}`, or `rayjob:night.yaml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem
from raysweep.errors import SpecError

SCHEMES: Final = ("rayjob", "launcher")
READY_S: Final = 1800.0
IDLE_S: Final = 900.0


def _path(given: Any) -> Any:
    return os.fspath(given) if isinstance(given, os.PathLike) else given


LocalFile = Annotated[str, BeforeValidator(_path, json_schema_input_type=str)]


class NightCluster(SpecModel):
    """A Ray cluster that is brought up for a run and removed after it. Bad input raises SpecError."""

    rayjob: LocalFile | None = None
    """The manifest of the cluster: a YAML file with a `RayCluster` or a `RayJob` of KubeRay."""
    launcher: LocalFile | None = None
    """A file of Ray's cluster launcher; refused, as nothing ends such a cluster once its driver is gone."""
    kubeconfig: LocalFile | None = None
    """A kubeconfig file; default: KUBECONFIG, in a pod its service account, else ~/.kube/config."""
    context: str | None = None
    """A context of the kubeconfig; default: its current one."""
    namespace: str | None = None
    """The namespace; default: that of the manifest, else of the context or the pod, else `default`."""
    reach: Literal["auto", "service", "proxy"] = "auto"
    """The way to the Jobs API: the head's service (`service`), which requires a place in the cluster's
    network, or the Kubernetes API server (`proxy`). `auto`: by the service in a pod, else through the
    API server."""
    ready_s: float = Field(default=READY_S, ge=1)
    """The longest wait for the cluster to be ready, in seconds. A cluster that takes longer is deleted."""
    idle_s: float = Field(default=IDLE_S, ge=30)
    """The lease, in seconds: the cluster ends once no job has run on it, or nothing has waited for it to come
    up, for so long."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.launcher is not None:
            problem = "is not supported: nothing ends the head of Ray's launcher once the driver is gone"
            fix = "use rayjob: on Kubernetes, or run `ray up` and `ray down` yourself and give --address"
            raise Problem(problem, fix, ("launcher",))
        if not self.rayjob:
            raise Problem("names no manifest", "write rayjob: night.yaml", ("rayjob",))
        return self

    @property
    def manifest(self) -> str:
        """The path of the manifest."""
        assert self.rayjob is not None
        return self.rayjob

    @classmethod
    def of(cls, address: object) -> NightCluster | None:
        """The cluster that an address describes; None where the address is of another kind.

        Args:
            address: A `NightCluster`, a mapping of its fields, or `rayjob:PATH`.

        Raises: SpecError.
        """
        if isinstance(address, NightCluster):
            return address
        try:
            if isinstance(address, Mapping):
                return cls.model_validate(dict(address))
            if isinstance(address, str):
                scheme, colon, path = address.strip().partition(":")
                # `rayjob:6379` may be a host and its port.
                if colon and scheme in SCHEMES and not path.isdigit() and not path.startswith("//"):
                    return cls.model_validate({scheme: path})
        except SpecError as error:
            raise SpecError(f"address.{error.field}", error.problem, error.fix) from None
        return None
