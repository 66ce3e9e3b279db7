"""Times at which something may be due. The code that set one says whether it still is, when it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

Call = Callable[[float], None]


class Alarms:
    """A heap of calls; those of one moment come in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Call]] = []
        self._numbers = count()

    @property
    def next_at(self) -> float | None:
        """The time of the next one."""
        return self._heap[0][0] if self._heap else None

    def set(self, at: float, call: Call) -> None:
        """Have `call` called with the time, at `at` or later."""
        heappush(self._heap, (at, next(self._numbers), call))

    def take_due(self, at: float) -> Iterator[Call]:
        """Those whose time has come; also those that are set for a moment until `at` meanwhile."""
        while self._heap and self._heap[0][0] <= at:
            yield heappop(self._heap)[2]
