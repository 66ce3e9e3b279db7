"""Schedulers: pure policies that turn reports into verdicts on trials."""

from __future__ import annotations

from raysweep.schedulers.asha import AshaScheduler
from raysweep.schedulers.base import (
    NOTHING,
    TRAINING_ITERATION,
    Decisions,
    Exploit,
    Move,
    Pause,
    Resume,
    Scheduler,
    Stop,
    Verdict,
)
from raysweep.schedulers.fifo import FifoScheduler
from raysweep.spec.search import AshaOptions
from raysweep.spec.sweep import SweepSpec

__all__ = [
    "NOTHING",
    "TRAINING_ITERATION",
    "AshaScheduler",
    "Decisions",
    "Exploit",
    "FifoScheduler",
    "Move",
    "Pause",
    "Resume",
    "Scheduler",
    "Stop",
    "Verdict",
    "make_scheduler",
]


def make_scheduler(spec: SweepSpec, seed: int | None = None) -> Scheduler:
    """Return the scheduler that a spec asks for, without any trial.

    Args:
        spec: the sweep's spec.
        seed: the seed that the sweep runs with; default `spec.seed`, or 0. It chooses brackets and
            nothing else.
    """
    options = spec.scheduler.options
    if not isinstance(options, AshaOptions):
        return FifoScheduler()
    return AshaScheduler(
        mode=spec.mode,
        max_t=options.max_t,
        grace_period=options.grace_period,
        reduction_factor=options.reduction_factor,
        brackets=options.brackets,
        seed=seed if seed is not None else spec.seed or 0,
        time_attr=options.time_attr,
    )
