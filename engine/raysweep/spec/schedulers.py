"""Which trials are stopped, paused or changed while they run: the schedulers by name, and their options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from raysweep.spec.base import SpecModel
from raysweep.spec.kinds import KindSpec, PluginOptions
from raysweep.spec.validation import Problem

TimeAttr = Annotated[str, Field(min_length=1)]


class FifoOptions(SpecModel):
    """Trials run in order and to their end: no options."""


class AshaOptions(SpecModel):
    """Asynchronous successive halving (Li et al., 2018): the defaults are Ray Tune's."""

    max_t: int = Field(default=100, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    grace_period: int = Field(default=1, ge=1)
    """The time before which no trial is stopped."""
    reduction_factor: float = Field(default=4.0, gt=1)
    """The top 1/reduction_factor of each rung goes on."""
    brackets: int = Field(default=1, ge=1)
    """How many brackets, each with a later first rung than the one before."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_grace(self.grace_period, self.max_t)
        return self


class MedianStoppingOptions(SpecModel):
    """Median stopping (Golovin et al., "Google Vizier", 2017), with the decisions of Ray Tune's rule."""

    grace_period: float = Field(default=1, ge=0)
    """The time before which no trial is stopped, and from which on means are taken."""
    min_samples_required: int = Field(default=3, ge=1)
    """How many other trials must have come as far before one is stopped."""
    hard_stop: bool = True
    """Whether a trial below the median is stopped for good; else it is paused until no other runs."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""


class HyperbandOptions(SpecModel):
    """HyperBand (Li et al., 2018): brackets of synchronous successive halving, by pausing."""

    max_t: int = Field(default=81, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """The top 1/reduction_factor of a bracket goes on at each rung."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""


class SchedulerSpec(KindSpec):
    """What becomes of trials that run: `fifo` (nothing), `asha`, … or `module:Class`, with its options."""

    kinds: ClassVar[dict[str, type[SpecModel]]] = {
        "fifo": FifoOptions,
        "asha": AshaOptions,
        "median_stopping": MedianStoppingOptions,
        "hyperband": HyperbandOptions,
    }

    kind: str = "fifo"
    """The scheduling algorithm."""
    options: FifoOptions | AshaOptions | MedianStoppingOptions | HyperbandOptions | PluginOptions = (
        FifoOptions()
    )
    """Its options."""


def _check_grace(grace_period: float, max_t: float) -> None:
    if grace_period > max_t:
        raise Problem(
            f"{grace_period} is above max_t {max_t}",
            f"set grace_period to {max_t} or less, or raise max_t",
            ("grace_period",),
        )
