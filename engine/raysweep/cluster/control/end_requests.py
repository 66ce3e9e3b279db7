"""Requests of this process to end the sweep: interrupts and cancellations, from any thread.

A request that comes before the sweep has begun waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from raysweep.core.vocabulary import events as ev

log = logging.getLogger("raysweep")


class EndRequests:
    """Turns requests into events on the event loop. A second interrupt calls `leave_at_once`.

    `hurry` makes the workers end within a second: a process that cancels this way is about to be killed.
    """

    def __init__(
        self,
        emit: Callable[[ev.Event], None],
        now: Callable[[], float],
        hurry: Callable[[], None],
        leave_at_once: Callable[[], None],
    ) -> None:
        self._emit = emit
        self._now = now
        self._hurry = hurry
        self._leave_at_once = leave_at_once
        self._loop: asyncio.AbstractEventLoop | None = None
        self._names: deque[str] = deque()
        self._reason: str | None = None
        self._interrupts = 0
        self._was_cancelled = False

    @property
    def is_at_once(self) -> bool:
        """True if a second interrupt came: nothing is waited for."""
        return self._interrupts > 1

    @property
    def is_hurried(self) -> bool:
        """True if the process has only seconds left."""
        return self._was_cancelled or self.is_at_once

    def interrupt(self, name: str = "Ctrl-C") -> None:
        """End the trials cleanly and leave the sweep resumable; the second time, leave at once."""
        self._names.append(name)
        self._call(self._take_interrupts)

    def cancel(self, reason: str) -> None:
        """Cancel the sweep within two seconds."""
        self._reason = reason
        self._call(self._take_cancel)

    def begin(self) -> None:
        """On the event loop, once the sweep has begun: act on the requests of before, and of from now on."""
        self._loop = asyncio.get_running_loop()
        self._take_interrupts()
        self._take_cancel()

    def _call(self, take: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(take)

    def _take_interrupts(self) -> None:
        while self._names:
            self._interrupt(self._names.popleft())

    def _interrupt(self, name: str) -> None:
        self._interrupts += 1
        if self.is_at_once:
            self._leave_at_once()
            return
        log.info("%s: ending the running trials; once more to end at once", name)
        self._emit(ev.InterruptRequested(at=self._now(), reason=f"interrupted by {name}"))

    def _take_cancel(self) -> None:
        if self._reason is None:
            return
        reason, self._reason = self._reason, None
        self._was_cancelled = True
        self._hurry()
        self._emit(ev.CancelRequested(at=self._now(), reason=reason))
