"""Calls of threads and tasks that have outlived their attempt: counted, and told to the controller."""

from __future__ import annotations

import threading
from typing import Final

from raysweep.messages import Job, TrialNoted
from raysweep.worker.link import Link

TEXT: Final = (
    "it left a thread or a task running whose calls of raysweep were refused after its end;"
    " let the trainable end what it starts before it returns"
)
_untold: Final[dict[Strays, None]] = {}
_lock: Final = threading.Lock()


class Strays:
    """Those of one attempt."""

    def __init__(self, job: Job, link: Link) -> None:
        self._job = job
        self._link = link
        self._calls = 0

    def count(self) -> None:
        """From any thread: one more. The first is told at once; a loop of them does not fill the link."""
        with _lock:
            self._calls += 1
            is_told = self._calls & (self._calls - 1) == 0
            if not is_told:
                _untold[self] = None
        if is_told:
            self.tell()

    def tell(self) -> None:
        """Send the number of calls so far."""
        self._link.send(TrialNoted(*self._job.who, text=TEXT, count=self._calls))


def tell_strays() -> None:
    """At the end of an attempt: what was counted of those before it."""
    while _untold:
        with _lock:
            strays = _untold.popitem()[0] if _untold else None
        if strays is not None:
            strays.tell()
