"""The parameters of flows and tasks, in types that Prefect's form can show."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

import raysweep as rs
from raysweep.jobs import options
from raysweep.specs.judge import JudgeSpec
from raysweep.specs.pipeline import GateSpec

LEASE_S: Final = 3600.0

SweepDocument = rs.SweepSpec | dict[str, Any] | str
"""A sweep's spec: the model, a mapping, or the path of a YAML or JSON file."""
TrainDocument = rs.TrainSpec | dict[str, Any] | str
"""A training's spec: the model, a mapping, or the path of a YAML or JSON file."""
GateDocument = GateSpec | dict[str, Any]
JudgeDocument = JudgeSpec | dict[str, Any]


class JobSettings(options.JobSettings):
    """Options of a sweep's or a training's job on a Ray cluster; an embedded Ray needs none of them."""

    lease_ttl_s: float | None = Field(default=LEASE_S, ge=10)
    """End the sweep, resumably, once no flow run has waited for it for this many seconds; none: never."""
