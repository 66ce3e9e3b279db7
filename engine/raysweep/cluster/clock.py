"""The controller's clock: Unix time that does not move when the wall clock is set.

The monotonic clock measures the time between two readings. So no timer stops or fires early when the wall
clock is set or the machine was suspended. The difference to the wall clock is an event of its own
(`ClockMoved`): only deadlines follow it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STEP_S: Final = 1.0
"""The smallest move of the wall clock that is told to the core."""


class SteadyClock:
    """Starts at the wall clock's time, `started_at` (the controller's claim) at the earliest."""

    def __init__(
        self,
        started_at: float = 0.0,
        wall: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall or time.time
        self._monotonic = monotonic
        self._base = max(started_at, self._wall()) - monotonic()

    def now(self) -> float:
        """The time of events and timers, in seconds."""
        return self._base + self._monotonic()

    def ahead_s(self) -> float:
        """The seconds that the wall clock is ahead of this one; negative: behind."""
        return self._wall() - self.now()

    def has_moved(self, ahead_s: float) -> bool:
        """True if the wall clock is elsewhere than `ahead_s` said."""
        return abs(self.ahead_s() - ahead_s) >= STEP_S
