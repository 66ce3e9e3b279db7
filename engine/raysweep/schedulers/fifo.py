"""No early stopping: every trial runs to its own end."""

from __future__ import annotations

from raysweep.schedulers.base import PolicySetup, Scheduler
from raysweep.schedulers.options import SchedulerOptions


class FifoOptions(SchedulerOptions):
    """Trials run in order and to their end: no options."""

    metrics = "none"
    decides = False

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return Scheduler()
