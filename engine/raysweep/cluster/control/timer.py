"""The core's timer on the event loop. The core has one: a later `SetTimer` replaces it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raysweep.core.vocabulary.commands import SetTimer


class CoreTimer:
    """Calls `fire` when the time of the last `SetTimer` has come; `now` is the controller's clock."""

    def __init__(self, fire: Callable[[], None], now: Callable[[], float]) -> None:
        self._fire = fire
        self._now = now
        self._handle: asyncio.TimerHandle | None = None

    def set(self, command: SetTimer) -> None:
        """Replace the timer; one without a time only cancels it."""
        self.cancel()
        if command.at is not None:
            delay_s = max(0.0, command.at - self._now())
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def cancel(self) -> None:
        """Forget the time."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._fire()
