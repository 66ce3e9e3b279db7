"""Options of a job: its code, its environment, the place of its driver. Nothing of the spec.

`JobSettings` is what may be shown and stored, as in an orchestrator's form; `JobOptions` adds the rest,
secrets included.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, SecretStr

from raysweep.documents.json_values import plain
from raysweep.documents.validation import Problem
from raysweep.errors import SpecError
from raysweep.specs.continuing import Continue

_OWN: Final = ("working_dir", "py_modules", "env_vars", "excludes")


def _check_path(given: Any) -> Any:
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def _check_runtime_env(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    for name in _OWN:
        if name in given:
            raise Problem("is set elsewhere", f"use {name}=", (name,))
    return plain(dict(given))


def _check_secrets(given: Any) -> Any:
    """Names and wrapped values. The errors show names only."""
    if not isinstance(given, Mapping):
        raise Problem(f"is a {type(given).__name__}", "give a mapping of names to values")
    found = {}
    for name, value in given.items():
        if not str(name) or "=" in str(name) or "\0" in str(name):
            raise Problem(f"{name!r} is not a name of a variable", "use letters, digits and _")
        if not isinstance(value, str | SecretStr):
            raise Problem(f"is a {type(value).__name__}", "write it as text", (str(name),))
        secret = value if isinstance(value, SecretStr) else SecretStr(value)
        if len(secret.get_secret_value().encode(errors="replace")) >= 128 * 1024:
            raise Problem("has more than 128 KiB", "put it into a file or the storage", (str(name),))
        found[str(name)] = secret
    return found


LocalPath = Annotated[str, BeforeValidator(_check_path, json_schema_input_type=str)]


class JobSettings(Continue):
    """Options of a sweep's or a training run's job on a cluster, without a secret in them.

    raysweep itself must be installed on the cluster, and so must all that is needed and not brought along.
    """

    working_dir: LocalPath | None = None
    """A folder here that the job runs in, uploaded unless the cluster has it; or a package's URI."""
    py_modules: Sequence[LocalPath] = ()
    """Folders of Python packages, or .py files, that the job can import; or URIs."""
    excludes: Sequence[str] = ()
    """Patterns, as in a .gitignore, of what is not uploaded."""
    includes: Sequence[str] = ()
    """Patterns of what is uploaded although its name says that it may be a secret, or made by a tool."""
    pass_env: Sequence[str] = ()
    """Environment variables here that driver and trials get too. Their values are shown nowhere."""
    runtime_env: Annotated[dict[str, Any], BeforeValidator(_check_runtime_env)] = Field(default_factory=dict)
    """Further fields of Ray's runtime environment, such as {"pip": ["lightgbm"]}."""
    driver_cpus: float | None = None
    """CPUs that the driver holds; with none of these four it runs on the head node and holds nothing."""
    driver_memory_bytes: int | None = None
    """Memory that the driver holds."""
    driver_resources: dict[str, float] = Field(default_factory=dict)
    """Custom resources that the driver holds: the way to a node of a certain kind."""
    driver_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the node that the driver runs on, such as {"ray.io/market-type": "on-demand"}."""
    lease_ttl_s: float | None = Field(default=None, ge=10)
    """End the sweep, resumably, once nothing has waited for it for this many seconds; none: it runs on."""


class JobOptions(JobSettings):
    """Options of a sweep's or a training run's job on a cluster. Raises SpecError for what cannot be."""

    env_vars: Annotated[dict[str, SecretStr], BeforeValidator(_check_secrets)] = Field(default_factory=dict)
    """The environment of driver and trials. Values never show; one may have at most 128 KiB."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """Shown with the job in Ray's dashboard, beside raysweep's own."""
    takeover: bool = False
    """Take the sweep from a controller that seems to live."""

    @classmethod
    def of(cls, settings: JobSettings) -> JobOptions:
        """These settings, and nothing else."""
        given = {name: getattr(settings, name) for name in type(settings).model_fields}
        return settings if isinstance(settings, JobOptions) else cls(**given)

    def secrets(self) -> Mapping[str, SecretStr]:
        """The environment, with what `pass_env` names. Raises: SpecError for a variable that is not set."""
        missing = [name for name in self.pass_env if name not in os.environ]
        if missing:
            raise SpecError("pass_env", f"{', '.join(missing)}: not set here", "set it, or leave it out")
        return {name: SecretStr(os.environ[name]) for name in self.pass_env} | self.env_vars
