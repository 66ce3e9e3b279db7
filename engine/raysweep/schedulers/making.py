"""The scheduler of a sweep, made from its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from raysweep.documents.mode import Mode
from raysweep.schedulers.base import PolicySetup, Scheduler
from raysweep.schedulers.judge import Judged, load_judge
from raysweep.schedulers.machinery.scaled import ScaledScheduler
from raysweep.schedulers.plugin import PLUGINS
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.space.scales import Scale


class Scheduled(Protocol):
    """The fields that a scheduler is made from: `SweepSpec` has them."""

    @property
    def scheduler(self) -> SchedulerSpec:
        """The scheduler, with its options."""
        ...

    @property
    def compared(self) -> tuple[str, Mode]:
        """The metric by which it compares trials, and its mode."""
        ...

    @property
    def objectives(self) -> Mapping[str, Mode]:
        """All metrics with their modes, in their order."""
        ...

    @property
    def seed(self) -> int | None:
        """The sweep's seed."""
        ...

    @property
    def param_space(self) -> Mapping[str, Any]:
        """The search space."""
        ...

    @property
    def proxy_scales(self) -> tuple[dict[str, float], ...]:
        """The values of its scales, the smallest first."""
        ...

    @property
    def where(self) -> tuple[str, ...]:
        """Relations that each config satisfies."""
        ...


class ScheduledAndJudged(Scheduled, Judged, Protocol):
    """The fields that decide about the trials of a sweep: `SweepSpec` has them."""


def load_scheduler(spec: ScheduledAndJudged) -> None:
    """Import what decides about trials in this spec, and is the user's own.

    That is the class of its scheduler, and the function of `stop.trial_if`.

    Raises:
        SpecError: it cannot be imported, is not a scheduler, or its options or state are invalid.
    """
    load_judge(spec)
    if spec.scheduler.is_plugin:
        PLUGINS.load(spec.scheduler.kind)
        scheduler = make_scheduler(spec)
        scheduler.from_json(scheduler.to_json())


def make_scheduler(spec: Scheduled, seed: int | None = None) -> Scheduler:
    """Return the scheduler that a spec asks for, without any trial.

    Args:
        spec: the sweep's spec.
        seed: the seed that the sweep runs with; default `spec.seed`, or 0.

    Raises:
        SpecError: it is of a class that was not loaded, or that does not take these options.
    """
    scales = spec.proxy_scales
    if len(scales) > 1 and spec.scheduler.options.decides:
        return ScaledScheduler(scales, [_make_at(spec, seed, scale) for scale in scales])
    return _make_at(spec, seed, scales[0] if scales else {})


def _make_at(spec: Scheduled, seed: int | None, scale: Scale) -> Scheduler:
    """The scheduler of the trials at one scale."""
    return spec.scheduler.make(
        PolicySetup(
            mode=spec.compared[1],
            seed=seed if seed is not None else spec.seed or 0,
            param_space={**spec.param_space, **scale},
            where=spec.where,
            modes=tuple(spec.objectives.values()),
        )
    )
