"""What the command line says of a job, where the address is that of a cluster's Jobs API."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raysweep.errors import SpecError

if TYPE_CHECKING:
    from raysweep.jobs.options import JobOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHow:
    """What the command line says of the job."""

    working_dir: str | None = None
    py_modules: tuple[str, ...] = ()
    env: tuple[str, ...] = field(default=(), repr=False)
    lease_s: float | None = None
    detach: bool = False
    resume_cancelled: bool = False
    driver_resources: tuple[str, ...] = ()
    driver_labels: tuple[str, ...] = ()
    takeover: bool = False

    @property
    def is_given(self) -> bool:
        """Whether there is anything that only a job can heed."""
        return self != JobHow(takeover=self.takeover, resume_cancelled=self.resume_cancelled)

    def options(self) -> JobOptions:
        """For the submission. Raises SpecError for what cannot be."""
        from raysweep.jobs.options import JobOptions

        resources = dict(_pair("--driver-resource", each) for each in self.driver_resources)
        cpus, memory = resources.pop("CPU", None), resources.pop("memory", None)
        return JobOptions(
            working_dir=self.working_dir,
            py_modules=self.py_modules,
            env_vars=dict(_variable(each) for each in self.env),
            lease_ttl_s=self.lease_s,
            takeover=self.takeover,
            on_cancelled="resume" if self.resume_cancelled else "keep",
            driver_cpus=_number("CPU", cpus) if cpus is not None else None,
            driver_memory_bytes=int(_number("memory", memory)) if memory is not None else None,
            driver_resources={name: _number(name, text) for name, text in resources.items()},
            driver_labels=dict(_pair("--driver-label", each) for each in self.driver_labels),
        )


def is_jobs_address(address: str | None) -> bool:
    """Whether this is a URL, as Jobs APIs have, and not the `host:port` of a cluster's control store."""
    return address is not None and address.strip().lower().startswith(("http://", "https://"))


def has_jobs_api(address: str | None, job: JobHow) -> bool:
    """Whether the address is that of a Jobs API. Raises SpecError for options that only such a one heeds."""
    if is_jobs_address(address):
        return True
    if job.is_given:
        problem = f"the address {address!r} is not that of a Jobs API" if address else "there is no --address"
        raise SpecError(
            "--working-dir, --env, --lease, --detach, --driver-…", problem, "give --address http://head:8265"
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
        raise SpecError("--driver-resource", f"{name}={text} is no number", "write CPU=1") from None
