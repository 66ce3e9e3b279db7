"""The field `scheduler` of a spec: one of the registered schedulers, or a class of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from raysweep.documents.kinds import KindSpec, load_kinds
from raysweep.documents.validation import Problem
from raysweep.schedulers.base import PolicySetup, Scheduler
from raysweep.schedulers.options import ComparingOptions, SchedulerOptions, SchedulerPluginOptions
from raysweep.schedulers.plugin import PluginScheduler
from raysweep.schedulers.registry import FORMER, KINDS

DEFAULT: Final = next(iter(KINDS))


class SchedulerSpec(KindSpec):
    """The rule for running trials: `fifo` (none), `asha`, … or `module:Class`, with its options."""

    kinds: ClassVar[Mapping[str, type[SchedulerOptions]]] = load_kinds(KINDS)
    plugin_options = SchedulerPluginOptions
    field = "scheduler"
    former = FORMER

    kind: str = DEFAULT
    """The scheduling algorithm."""
    options: SchedulerOptions = kinds[DEFAULT]()
    """Its options."""

    @property
    def comparing(self) -> tuple[str, ComparingOptions] | None:
        """The options that name the metric by which trials are compared, and their path in `scheduler`."""
        found = self.options.comparing
        return None if found is None else (".".join((self.kind, *found[0])), found[1])

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial.

        Raises:
            SpecError: it is of a class that was not loaded, or that does not take these options.
        """
        if isinstance(self.options, SchedulerPluginOptions):
            return PluginScheduler(self.kind, self.options, setup)
        return self.options.make(setup)


def check_scheduler(
    scheduler: SchedulerSpec, space: Mapping[str, Any], num_samples: int | None, max_concurrent: int | None
) -> None:
    """See that a scheduler has something to work with. Imports nothing. Raises Problem."""
    scheduler.options.check_space(space)
    if scheduler.options.can_wait or max_concurrent is None or num_samples is None:
        return
    if max_concurrent < num_samples:
        kind = scheduler.kind
        raise Problem(
            f"{kind} compares trials that run at once, and of {num_samples} only {max_concurrent} may",
            f"set max_concurrent_trials to {num_samples}, or scheduler.{kind}.synch to true",
            ("max_concurrent_trials",),
        )
