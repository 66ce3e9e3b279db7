"""Computes when a training ends by its spec's limits, and when its workers are asked for a checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from raysweep.documents.wall_clock import resolve_deadline
from raysweep.outcome import ErrorInfo, Usage
from raysweep.specs.train_parts import TrainStop
from raysweep.transfer.watched import Fall

Reason = Literal["", "deadline", "time_budget", "below_prediction"]
_SAID: Final = {"deadline": "stop.deadline", "time_budget": "stop.time_budget_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit, and its clock: the wall clock of a deadline, the monotonic one of a budget.

    That of `below_prediction` stands still until the run has fallen.
    """

    reason: Reason
    ends_at: float
    clock: Callable[[], float]

    @property
    def left_s(self) -> float:
        """Seconds until it comes; negative: it has come."""
        return self.ends_at - self.clock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The limits of a run. Which of them comes first may change where the wall clock is set."""

    limits: tuple[Limit, ...] = ()
    grace_s: float = 60.0

    @property
    def left_s(self) -> float:
        """Seconds until the run ends; infinite where there is no limit."""
        return min((limit.left_s for limit in self.limits), default=math.inf)

    @property
    def reason(self) -> Reason:
        """The limit that comes first; empty where there is none."""
        return min(self.limits, key=lambda limit: limit.left_s).reason if self.limits else ""

    @property
    def is_over(self) -> bool:
        """True if the run is to end now."""
        return self.left_s <= 0

    @property
    def asks_in_s(self) -> float:
        """Seconds until the workers are asked for a checkpoint; infinite where there is no limit."""
        return self.left_s - self.grace_s

    @property
    def wants_checkpoint(self) -> bool:
        """True if the end is so near that the workers are asked for a checkpoint."""
        return self.asks_in_s <= 0

    def beside(self, fall: Fall) -> Ending:
        """The same, and the run ends as soon as it has fallen below its prediction."""
        if fall.band is None:
            return self
        limit = Limit(
            reason="below_prediction",
            ends_at=0.0,
            clock=lambda: math.inf if fall.has_fallen else -math.inf,
        )
        return replace(self, limits=(*self.limits, limit))


def ending_of(
    stop: TrainStop,
    *,
    began_at: float,
    used: Usage | None,
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> Ending:
    """The ending of a run, by its limits.

    Args:
        stop: The limits.
        began_at: When the run was started for the first time, in UTC seconds.
        used: What earlier attempts have used.
        wall: Gives UTC seconds.
        monotonic: Gives seconds that only grow.
    """
    limits = []
    deadline = resolve_deadline(stop.deadline, began_at)
    if deadline is not None:
        limits.append(Limit(reason="deadline", ends_at=deadline.timestamp(), clock=wall))
    if stop.time_budget_s is not None:
        left_s = stop.time_budget_s - (used.active_s if used is not None else 0.0)
        limits.append(Limit(reason="time_budget", ends_at=monotonic() + left_s, clock=monotonic))
    return Ending(limits=tuple(limits), grace_s=stop.grace_s)


def needs_checkpoint(reason: Reason) -> bool:
    """True if a run that this ended is of no use without a checkpoint."""
    return reason in _SAID


def no_checkpoint(reason: Reason) -> ErrorInfo:
    """The error of a run that met a limit with nothing to show for it."""
    fix = "give it more time (the same key continues), or report one where rs.should_checkpoint() is true"
    return ErrorInfo(kind=reason, message=f"{_SAID[reason]} came before the first checkpoint; {fix}")
