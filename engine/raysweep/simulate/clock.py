"""Virtual time: a heap of (time, counter), so that what is due at one time happens in the order of asking.

It is the monotonic clock of all machines; `set_wall` moves their wall clock against it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Call = Callable[[], None]


class Clock:
    """Calls things when they are due; `now` (seconds) jumps from one to the next."""

    def __init__(self, starts_at: float = 0.0) -> None:
        self.now = starts_at
        self.ahead_s = 0.0
        self._due: list[tuple[float, int, Call]] = []
        self._counter = count()

    def wall(self) -> float:
        """The wall clock's time."""
        return self.now + self.ahead_s

    def set_wall(self, by_s: float) -> None:
        """Set the wall clock forward, or back where `by_s` is negative."""
        self.ahead_s += by_s

    def at(self, when: float, call: Call) -> None:
        """Call at `when`, or now if that has passed."""
        heapq.heappush(self._due, (max(self.now, when), next(self._counter), call))

    def after(self, seconds: float, call: Call) -> None:
        """Call `call` in `seconds` seconds."""
        self.at(self.now + seconds, call)

    def run_next(self) -> bool:
        """Continue to what is due next; False: nothing is."""
        if not self._due:
            return False
        self.now, _, call = heapq.heappop(self._due)
        call()
        return True

    def forget_all(self) -> None:
        """Nothing of what was asked for happens any more."""
        self._due.clear()
