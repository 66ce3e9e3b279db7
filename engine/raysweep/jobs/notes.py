"""The progress of a sweep as lines of a job's log."""

from __future__ import annotations

import time
from collections.abc import Callable

from raysweep.outcome import SweepProgress
from raysweep.show import show_progress


class ProgressNotes:
    """Called with each progress; says a line at most every `every_s` seconds, and only when it is new."""

    def __init__(
        self, say: Callable[[str], None], every_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._every_s = every_s
        self._clock = clock
        self._said_at = float("-inf")
        self._last = ""

    def __call__(self, progress: SweepProgress) -> None:
        """Take one."""
        now = self._clock()
        if now - self._said_at < self._every_s:
            return
        line = f"sweep {progress.sweep_id}: {progress.status}, {show_progress(progress, has_config=False)}"
        if line != self._last:
            self._said_at, self._last = now, line
            self._say(line)
