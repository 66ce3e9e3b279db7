"""A limit on bytes per second: each amount waits until those before it are paid for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# How long is waited at a time: a caller that gives up is noticed by then.
_STEP_S = 0.25


class Bandwidth:
    """A token bucket that holds one amount: what comes first goes at once, whatever its size.

    Args:
        bytes_per_s: What passes in a second, over time.
        clock: Seconds that only grow.
        wait: Passes so many seconds.
    """

    def __init__(
        self,
        bytes_per_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._wait = wait or threading.Event().wait
        self._taking = threading.Lock()
        self._free_at = clock()

    def take(self, size_bytes: int, go_on: Callable[[], None] = lambda: None) -> None:
        """Wait until so many bytes may pass. `go_on` is called meanwhile; what it raises ends the wait."""
        with self._taking:
            begins_at = max(self._clock(), self._free_at)
            self._free_at = begins_at + size_bytes / self._bytes_per_s
        while (left_s := begins_at - self._clock()) > 0:
            go_on()
            self._wait(min(left_s, _STEP_S))
