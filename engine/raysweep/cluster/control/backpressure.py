"""Holds workers' messages back while the journal lags, so that the controller's memory is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raysweep.cluster.control.background import Background
from raysweep.cluster.server import LinkServer
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import events as ev
from raysweep.storage.journal.writer import JournalWriter

ROOM_S: Final = 0.05
"""The seconds between two checks if a crowded writer has room again."""


class Backpressure:
    """Stops reading from the workers while the writer is crowded, and tells the core when storage stalls."""

    def __init__(
        self,
        state: SweepState,
        writer: JournalWriter,
        server: LinkServer,
        background: Background,
        emit: Callable[[ev.Event], None],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._writer = writer
        self._server = server
        self._background = background
        self._emit = emit
        self._now = now

    def hold_if_crowded(self) -> None:
        """Stop reading from the workers if the writer is crowded, until it has room again."""
        if self._writer.is_crowded and not self._server.is_held:
            self._server.hold_back(True)
            self._background.spawn(self._release())

    def see_storage(self) -> None:
        """Tell the core when the journal begins to lag, and when it has caught up: trials are silent then."""
        is_stalled = self._server.is_held or self._writer.is_stalled
        if is_stalled != self._state.controller.is_stalled and self._state.phase != "ended":
            self._emit(ev.StorageStalled(at=self._now(), is_over=not is_stalled))

    async def _release(self) -> None:
        while self._writer.is_crowded:  # noqa: ASYNC110  the writer is a thread and knows of no loop
            await asyncio.sleep(ROOM_S)
        self._server.hold_back(False)
