"""The limits of the dashboard's connections, over uvicorn's protocol: time without a request, stalls, number.

uvicorn alone lets a client that sends nothing, or half a request, keep its connection for ever. Here each
connection has a deadline while no request is being answered, and while its client takes nothing. The newest
connection is always accepted: at the limit the one that has waited longest without a request is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_S: Final = 10.0
"""The longest time for a connection until its next request is complete."""
STALL_S: Final = 30.0
"""The longest time for a client to take nothing of an answer."""
MAX_CONNECTIONS: Final = 256
MAX_HEAD_BYTES: Final = 32 * 1024
"""Of a request's first line and headers; on localhost browsers send the cookies of other servers too."""


class Connection(H11Protocol):
    """One connection. A body that a client sends is read and dropped."""

    waiting_since: float | None = None
    """By the loop's clock; None while a request is being answered."""
    _idle: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_CONNECTIONS:
            _close_longest_waiting(self.connections)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()
        if self._is_answering():  # the next request had arrived already
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()

    def close_now(self) -> None:
        """Close it without waiting for its client."""
        self._stop_waiting()
        self.transport.abort()

    def _is_answering(self) -> bool:
        # It is None before the first request, whatever its type says.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _wait(self) -> None:
        self._stop_waiting()
        self.waiting_since = self.loop.time()
        # An answer that the client does not take would hold up a close; an abort waits for nothing.
        self._idle = self.loop.call_later(IDLE_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        if self._idle is not None:
            self._idle.cancel()

    def _stop_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()


def _close_longest_waiting(connections: Any) -> None:
    """Growth: with MAX_CONNECTIONS, for each connection beyond them; the newest itself is one that waits."""
    waiting = [each for each in connections if each.waiting_since is not None]
    min(waiting, key=lambda each: each.waiting_since).close_now()
