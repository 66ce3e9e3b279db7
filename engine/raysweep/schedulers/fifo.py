"""No early stopping: every trial runs to its own end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from raysweep.schedulers.base import NOTHING, TRAINING_ITERATION, Decisions, Move, PolicySetup, Scheduler
from raysweep.schedulers.options import (
    SchedulerOptions,
)


class FifoOptions(SchedulerOptions):
    """Trials run in order and to their end: no options."""

    metrics = "none"
    decides = False

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return FifoScheduler()


class FifoScheduler:
    """Lets every trial continue. Holds no state."""

    __slots__ = ()

    time_attr: Final = TRAINING_ITERATION
    max_t: Final = None
    moves: Final[frozenset[Move]] = frozenset()

    def add(self, trial: int, config: Mapping[str, Any]) -> None:
        """Do nothing: trials are not told apart."""

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Return no decisions."""
        return NOTHING

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Return no decisions."""
        return NOTHING

    def remove(self, trial: int) -> Decisions:
        """Return no decisions."""
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Return no decisions: it pauses nothing."""
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def from_json(self, state: dict[str, Any]) -> None:
        """Accept any state: there is nothing to restore."""
