"""The progress of a sweep as lines of a log: a driver's, a task's."""

from __future__ import annotations

import time
from collections.abc import Callable

from raysweep.outcome import SweepProgress
from raysweep.outcome.showing.formatting import show_progress


class ProgressLines:
    """Called with each progress; says a line at most every `every_s` seconds, and only when it is new."""

    def __init__(
        self, say: Callable[[str], None], every_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._every_s = every_s
        self._clock = clock
        self._said_at = float("-inf")
        self._last = ""

    def __call__(self, progress: SweepProgress) -> None:
        """Take one."""
        now, line = self._clock(), progress_line(progress)
        if line != self._last and now - self._said_at >= self._every_s:
            self._said_at, self._last = now, line
            self._say(line)


def progress_line(progress: SweepProgress) -> str:
    """`running: 12 of 50 trials ended: 12 completed, 4 running; best auc 0.93 (trial 00007)`."""
    return f"{progress.status}: {show_progress(progress, has_config=False)}"
