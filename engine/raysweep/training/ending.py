"""When a training ends by the limits in its spec, and when its workers are asked for a checkpoint first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from raysweep.outcome import ErrorInfo, Usage
from raysweep.spec.trainparts import TrainStop
from raysweep.spec.wallclock import resolve_deadline

Reason = Literal["", "deadline", "time_budget"]
_SAID: Final = {"deadline": "stop.deadline", "time_budget": "stop.time_budget_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The first of a run's limits. Times are UTC seconds."""

    ends_at: float | None = None
    """None: there is no limit."""
    reason: Reason = ""
    """Which limit it is."""
    grace_s: float = 60.0
    clock: Callable[[], float] = time.time

    @property
    def is_over(self) -> bool:
        """Whether the run is to end now."""
        return self.ends_at is not None and self.clock() >= self.ends_at

    @property
    def asks_in_s(self) -> float:
        """Seconds until the workers are asked for a checkpoint; infinite where there is no limit."""
        return math.inf if self.ends_at is None else self.ends_at - self.grace_s - self.clock()

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the end is so near that the workers are asked for a checkpoint."""
        return self.asks_in_s <= 0


def ending_of(
    stop: TrainStop, *, began_at: float, used: Usage | None, clock: Callable[[], float] = time.time
) -> Ending:
    """The first limit that a run will meet.

    Args:
        stop: The limits.
        began_at: When the run was started for the first time, in UTC seconds.
        used: What earlier attempts have used.
        clock: Gives UTC seconds.
    """
    limits: list[tuple[float, Reason]] = []
    deadline = resolve_deadline(stop.deadline, began_at)
    if deadline is not None:
        limits.append((deadline.timestamp(), "deadline"))
    if stop.time_budget_s is not None:
        left = stop.time_budget_s - (used.active_s if used is not None else 0.0)
        limits.append((clock() + left, "time_budget"))
    if not limits:
        return Ending(clock=clock)
    ends_at, reason = min(limits)
    return Ending(ends_at=ends_at, reason=reason, grace_s=stop.grace_s, clock=clock)


def no_checkpoint(reason: Reason) -> ErrorInfo:
    """The error of a run that met a limit with nothing to show for it."""
    fix = "give it more time (the same key goes on), or report one where rs.should_checkpoint() is true"
    return ErrorInfo(kind=reason, message=f"{_SAID[reason]} came before the first checkpoint; {fix}")
