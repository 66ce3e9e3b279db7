"""How a job is submitted: its code, its environment, where its driver runs. Nothing of the spec."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import SecretStr

from raysweep.errors import SpecError
from raysweep.spec.jsonable import plain
from raysweep.spec.validation import Problem

OnCancelled = Literal["keep", "resume"]
_OWN: Final = {
    "working_dir": "working_dir=",
    "py_modules": "py_modules=",
    "env_vars": "env_vars=",
    "excludes": "excludes=",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How a sweep or a training run is submitted to a cluster. Raises SpecError for what cannot be.

    raysweep itself must be installed on the cluster, and so must all that is needed and not brought along.
    """

    working_dir: str | os.PathLike[str] | None = None
    """A folder that the job runs in, uploaded unless the cluster has it; or the URI of a package."""
    py_modules: Sequence[str | os.PathLike[str]] = ()
    """Folders of Python packages, or `.py` files, to be importable; or URIs."""
    excludes: Sequence[str] = ()
    """Patterns, as in a .gitignore, of what is not uploaded."""
    includes: Sequence[str] = ()
    """Patterns of what is uploaded although its name says that it may be a secret, or made by a tool."""
    env_vars: Mapping[str, str | SecretStr] = field(default_factory=dict)
    """The environment of driver and trials. Values never show; one may have at most 128 KiB."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of Ray's runtime environment, such as `{"pip": [...]}`."""
    driver_cpus: float | None = None
    """CPUs that the driver holds. With none of these four it runs on the head node, and holds nothing."""
    driver_memory_bytes: int | None = None
    driver_resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources that the driver holds: the way to a node of a certain kind."""
    driver_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the node that the driver runs on, such as `{"ray.io/market-type": "on-demand"}`."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Shown with the job in Ray's dashboard, beside raysweep's own."""
    lease_ttl_s: float | None = None
    """End the sweep, resumably, once nobody has waited for it for so long; None: it runs on alone."""
    takeover: bool = False
    """Take the sweep from a controller that seems to live."""
    on_cancelled: OnCancelled = "keep"
    """What is done with a job that a person stopped: `resume` submits the next one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "env_vars", _secrets(self.env_vars))
        for name, instead in _OWN.items():
            if name in self.runtime_env:
                raise SpecError(f"runtime_env.{name}", "is set elsewhere", f"use {instead}")
        try:
            object.__setattr__(self, "runtime_env", plain(dict(self.runtime_env), ("runtime_env",)))
        except Problem as problem:
            raise SpecError("runtime_env", str(problem), problem.issues[0].fix) from None
        for name, value in self.metadata.items():
            if not all(isinstance(each, str) for each in (name, value)):
                raise SpecError("metadata", f"{name!r} is no text", "give texts")
        if self.lease_ttl_s is not None and not self.lease_ttl_s >= 10:
            raise SpecError("lease_ttl_s", f"{self.lease_ttl_s} is less than 10 s", "use 60 or more")
        if self.on_cancelled not in ("keep", "resume"):
            raise SpecError("on_cancelled", f"{self.on_cancelled!r} is unknown", "use 'keep' or 'resume'")

    def secrets(self) -> Mapping[str, SecretStr]:
        """`env_vars`, each of them wrapped."""
        return {name: each for name, each in self.env_vars.items() if isinstance(each, SecretStr)}


def _secrets(given: Mapping[str, str | SecretStr]) -> dict[str, SecretStr]:
    """Names and wrapped values. The errors show names only."""
    found = {}
    for name, value in given.items():
        if not str(name) or "=" in str(name) or "\0" in str(name):
            raise SpecError("env_vars", f"{name!r} is no name of a variable", "use letters, digits and _")
        if not isinstance(value, str | SecretStr):
            raise SpecError(f"env_vars.{name}", f"is a {type(value).__name__}", "write it as text")
        secret = value if isinstance(value, SecretStr) else SecretStr(value)
        if len(secret.get_secret_value().encode(errors="replace")) >= 128 * 1024:
            raise SpecError(f"env_vars.{name}", "has more than 128 KiB", "put it into a file or the storage")
        found[name] = secret
    return found
