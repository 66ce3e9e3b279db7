"""What flows and tasks are given, in types that Prefect's form can show."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

import raysweep as rs
from raysweep.errors import SpecError
from raysweep.jobs.options import JobOptions
from raysweep.spec.pipeline import GateSpec

LEASE_S: Final = 3600.0

SweepDocument = rs.SweepSpec | dict[str, Any] | str
"""A sweep's spec: the model, a mapping, or the path of a YAML or JSON file."""
TrainDocument = rs.TrainSpec | dict[str, Any] | str
"""A training's spec: the model, a mapping, or the path of a YAML or JSON file."""
GateDocument = GateSpec | dict[str, Any]


class JobSettings(BaseModel):
    """How a sweep or a training is submitted to a Ray cluster; an embedded Ray needs none of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    working_dir: str | None = None
    """A folder on the worker that the job runs in, uploaded unless the cluster has it; or a package's URI."""
    py_modules: list[str] = Field(default_factory=list)
    """Folders of Python packages, or .py files, on the worker that the job can import."""
    excludes: list[str] = Field(default_factory=list)
    """Patterns, as in a .gitignore, of what is not uploaded."""
    pass_env: list[str] = Field(default_factory=list)
    """Environment variables of the worker that driver and trials get too. Their values are shown nowhere."""
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    """Further fields of Ray's runtime environment, such as {"pip": ["lightgbm"]}."""
    driver_cpus: float | None = None
    """CPUs that the driver holds; with none of these three it runs on the head node and holds nothing."""
    driver_resources: dict[str, float] = Field(default_factory=dict)
    """Custom resources that the driver holds: the way to a node of a certain kind."""
    driver_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the node that the driver runs on, such as {"ray.io/market-type": "on-demand"}."""
    lease_ttl_s: float | None = Field(default=LEASE_S, ge=10)
    """End the sweep, resumably, once no flow run has waited for it for so many seconds; none: it goes on."""
    on_cancelled: Literal["keep", "resume"] = "keep"
    """What another run with the key of a cancelled sweep does: return what it gave, or go on with it."""

    def options(self) -> JobOptions:
        """As the engine takes it. Raises SpecError for what cannot be."""
        missing = [name for name in self.pass_env if name not in os.environ]
        if missing:
            names = ", ".join(missing)
            raise SpecError("job.pass_env", f"{names}: not set on the worker", "set it, or leave it out")
        return JobOptions(
            working_dir=self.working_dir,
            py_modules=tuple(self.py_modules),
            excludes=tuple(self.excludes),
            env_vars={name: os.environ[name] for name in self.pass_env},
            runtime_env=self.runtime_env,
            driver_cpus=self.driver_cpus,
            driver_resources=self.driver_resources,
            driver_labels=self.driver_labels,
            lease_ttl_s=self.lease_ttl_s,
            on_cancelled=self.on_cancelled,
        )
