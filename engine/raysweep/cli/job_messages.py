"""Messages about jobs, for commands whose address is that of a cluster's Jobs API."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raysweep.errors import SpecError
from raysweep.run import is_job_place

if TYPE_CHECKING:
    from raysweep.jobs.options import JobOptions
    from raysweep.specs.continuing import Extension, Retry


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHow:
    """Options of the command line about the job."""

    options: JobOptions
    detach: bool = False

    @property
    def is_given(self) -> bool:
        """True if there is anything that only a job can heed."""
        return (
            self.detach
            or self.options.model_fields_set - {"takeover", "resume_cancelled", "retry", "extend"} != set()
        )


def job_how(
    *,
    working_dir: str | None = None,
    py_modules: Sequence[str] | None = None,
    env: Sequence[str] | None = None,
    lease_s: float | None = None,
    detach: bool = False,
    resume_cancelled: bool = False,
    driver_resources: Sequence[str] | None = None,
    driver_labels: Sequence[str] | None = None,
    takeover: bool = False,
    retry: Retry | None = None,
    extend: Extension | None = None,
) -> JobHow:
    """From the command line's words. Raises SpecError for what cannot be."""
    from raysweep.jobs.options import JobOptions

    resources = dict(_pair("--driver-resource", each) for each in driver_resources or ())
    cpus, memory = resources.pop("CPU", None), resources.pop("memory", None)
    given = {
        "working_dir": working_dir,
        "py_modules": py_modules or None,
        "env_vars": dict(_variable(each) for each in env or ()) or None,
        "lease_ttl_s": lease_s,
        "takeover": takeover or None,
        "resume_cancelled": resume_cancelled or None,
        "retry": retry,
        "extend": extend,
        "driver_cpus": _number("CPU", cpus) if cpus is not None else None,
        "driver_memory_bytes": int(_number("memory", memory)) if memory is not None else None,
        "driver_resources": {name: _number(name, text) for name, text in resources.items()} or None,
        "driver_labels": dict(_pair("--driver-label", each) for each in driver_labels or ()) or None,
    }
    said = {name: each for name, each in given.items() if each is not None}
    return JobHow(options=JobOptions.model_validate(said), detach=detach)


def has_jobs_api(address: str | None, job: JobHow) -> bool:
    """True if the address is that of a Jobs API. Raises SpecError for options that only such a one heeds."""
    if is_job_place(address):
        return True
    if job.is_given:
        problem = f"the address {address!r} is not that of a Jobs API" if address else "there is no --address"
        raise SpecError(
            "--working-dir, --env, --lease, --detach, --driver-…",
            problem,
            "give --address http://head:8265, or rayjob:night.yaml",
        )
    return False


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SpecError(option, f"{text!r} is not name=value", f"write {option} name=value")
    return name, value


def _variable(text: str) -> tuple[str, str]:
    """`NAME=value`, or `NAME` for the value that it has here. Never shows the value."""
    name, equals, value = text.partition("=")
    if equals:
        return name, value
    if name not in os.environ:
        raise SpecError("--env", f"{name!r} is not set here", "set it, or write --env NAME=value")
    return name, os.environ[name]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError("--driver-resource", f"{name}={text} is not a number", "write CPU=1") from None
