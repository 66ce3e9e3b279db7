"""When something is decided about the trials of a sweep, as its spec says: `worker.rungs` waits there."""

from __future__ import annotations

from typing import Any

from raysweep.schedulers.asha import milestones
from raysweep.schedulers.base import TRAINING_ITERATION
from raysweep.specs import SweepSpec
from raysweep.specs.brackets import halvings, milestone
from raysweep.specs.schedulers import (
    AshaOptions,
    DehbOptions,
    FreezeThawOptions,
    HyperbandOptions,
    MoashaOptions,
    PashaOptions,
    Pb2Options,
    PbtOptions,
    ResourceChangingOptions,
)
from raysweep.worker.sweep_info import Rungs


def rungs_of(spec: SweepSpec) -> Rungs:
    """The rungs of its scheduler below `max_t`: a trial that has come as far ends by itself, as a rule.

    None of `median_stopping`, which decides at each report, and of a scheduler of the user's own. None either
    where a trial is the driver of a Ray Train run, whose reports others make.
    """
    if spec.resources.train is not None:
        return Rungs()
    options: Any = spec.scheduler.options
    interval = _interval(options)
    if isinstance(options, ResourceChangingOptions):
        options = options.base.options
    attr = str(getattr(options, "time_attr", TRAINING_ITERATION))
    max_t: float | None = getattr(options, "max_t", None)
    return Rungs(
        attr="" if attr == TRAINING_ITERATION else attr,
        times=tuple(sorted(time for time in _times(options) if max_t is None or time < max_t)),
        interval=interval,
        below=max_t,
    )


def _times(options: Any) -> list[float]:
    if isinstance(options, AshaOptions | PashaOptions | MoashaOptions):
        return milestones(options.grace_period, options.max_t, options.reduction_factor, 0)
    if isinstance(options, HyperbandOptions | DehbOptions):
        max_t, factor = options.max_t, options.reduction_factor
        return [milestone(max_t, factor, left) for left in range(halvings(max_t, factor) + 1)]
    return []


def _interval(options: Any) -> float:
    if isinstance(options, PbtOptions | Pb2Options):
        return options.perturbation_interval
    if isinstance(options, FreezeThawOptions | ResourceChangingOptions):
        return options.interval
    return 0.0
