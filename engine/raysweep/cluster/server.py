"""The controller's end of the link: an asyncio server for workers that know the sweep's token.

A stranger that finds the port may send one small frame within a few seconds, then the connection is
closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import resource
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from raysweep.messages import FromWorker, Hello, ToWorker
from raysweep.worker.wire import FROM_WORKER, HELLO, MAX_FRAME_BYTES, FrameReader, pack

# A worker says hello as soon as it is connected.
HELLO_TIMEOUT_S: Final = 10.0
MAX_HELLO_BYTES: Final = 4096
BACKLOG: Final = 1024
# Workers that connect all at once are strangers for a moment: two rounds of accepting may lie between a
# connection and its first bytes. Beyond, the oldest has to go: it has had more time than a worker needs.
MAX_STRANGERS: Final = 2 * BACKLOG
# Of the files that this process may have open, the share that strangers get: the journal needs some too.
STRANGERS_SHARE: Final = 4
# What is left to be sent to workers at the end. One whose node is gone never takes it.
LAST_WORDS_S: Final = 1.0
READ_BYTES: Final = 2**18

OnMessages = Callable[[str, list[FromWorker]], None]
OnGone = Callable[[str], None]
log = logging.getLogger("raysweep")


class Connection(asyncio.Protocol):
    """One worker's connection. Until it has said which worker it is, it may say nothing else."""

    def __init__(self, server: LinkServer) -> None:
        self._server = server
        self._reader: FrameReader[Sequence[Hello | FromWorker]] = FrameReader(HELLO, MAX_HELLO_BYTES)
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self.worker: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timeout = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self.abort)
        self._server.take_in(self)

    def data_received(self, data: bytes) -> None:
        arrived: list[FromWorker] = []
        try:
            for messages in self._reader.feed(data):
                for message in messages:
                    if isinstance(message, Hello):
                        self._greet(message)
                    else:
                        arrived.append(message)
        except ValueError as error:
            if self.worker is not None:
                log.error("closed the link of worker %s: %s", self.worker, error)
            self.abort()  # else a stranger: it sent something that is no frame of ours
        if arrived and self.worker is not None:
            self._server.on_messages(self.worker, arrived)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        if exc is not None and self._transport is not None and self._server.hears(self):
            self._take_rest(self._transport.get_extra_info("socket").fileno())
        self._server.forget(self)

    def send(self, messages: list[ToWorker]) -> None:
        """Send one frame."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack(messages))

    def hold_back(self, is_held: bool) -> None:
        """Stop reading, or continue: the worker's reports wait on its side."""
        if self._transport is not None and is_held:
            self._transport.pause_reading()
        elif self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Hang up once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up now."""
        if self._transport is not None:
            self._transport.abort()

    def _take_rest(self, fileno: int) -> None:
        """Take what the worker had said before it was gone: after a write that failed, asyncio does not."""
        with suppress(OSError):
            while data := os.read(fileno, READ_BYTES):
                self.data_received(data)

    def _greet(self, hello: Hello) -> None:
        if not hmac.compare_digest(hello.token.encode(), self._server.token.encode()):
            raise ValueError("a stranger")
        assert self._timeout is not None
        self._timeout.cancel()
        self.worker = hello.worker
        self._reader.decoder, self._reader.max_bytes = FROM_WORKER, MAX_FRAME_BYTES
        self._server.remember(self.worker, self)


class LinkServer:
    """Listens for workers; hands their messages over, in order, on the event loop's thread."""

    def __init__(
        self, on_messages: OnMessages, on_gone: OnGone, on_connected: OnGone = lambda worker: None
    ) -> None:
        self.token = secrets.token_hex(16)
        self.host = ""
        self.port = 0
        self.on_messages = on_messages
        self._on_gone = on_gone
        self._on_connected = on_connected
        self.is_held = False
        self._connections: dict[str, Connection] = {}
        # All that are open, in the order in which they came: also unknown ones, and those being closed.
        self._open: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        self._max_strangers = MAX_STRANGERS
        self._server: asyncio.Server | None = None
        self._alone: asyncio.Event | None = None

    async def start(self, host: str) -> None:
        """Listen on `host`, at a free port."""
        loop = asyncio.get_running_loop()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            self._max_strangers = min(MAX_STRANGERS, max(8, limit // STRANGERS_SHARE))
        backlog = min(BACKLOG, max(4, self._max_strangers // 2))
        self._server = await loop.create_server(lambda: Connection(self), host, 0, backlog=backlog)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def is_connected(self, worker: str) -> bool:
        """True if the worker's connection is open as far as is known here."""
        return worker in self._connections

    def hears(self, connection: Connection) -> bool:
        """True if what comes on a connection is a worker's word, and has not been hung up on."""
        return connection.worker is not None and self._connections.get(connection.worker) is connection

    def send(self, worker: str, messages: list[ToWorker]) -> None:
        """Send to a worker; nothing happens if it is gone (`on_gone` says so)."""
        connection = self._connections.get(worker)
        if connection is not None:
            connection.send(messages)

    def hold_back(self, is_held: bool) -> None:
        """Take no more messages from any worker, until it is called with False. Sending continues."""
        self.is_held = is_held
        for connection in self._connections.values():
            connection.hold_back(is_held)

    def hang_up(self, worker: str) -> None:
        """Close a worker's connection, without a call of `on_gone`."""
        connection = self._connections.pop(worker, None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close all connections and stop listening; what is unsent has a moment to leave."""
        if self._server is not None:
            self._server.close()
        for worker in list(self._connections):
            self.hang_up(worker)
        for stranger in list(self._strangers):
            stranger.abort()
        await self._wait_until_alone()
        for connection in list(self._open):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def take_in(self, connection: Connection) -> None:
        """Take in a connection whose other end has yet to say who it is."""
        self._open[connection] = self._strangers[connection] = None
        if self._alone is not None:
            connection.abort()  # it came while all are being closed
        elif len(self._strangers) > self._max_strangers:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()

    def remember(self, worker: str, connection: Connection) -> None:
        """A stranger has turned out to be a worker."""
        self._strangers.pop(connection, None)
        self._connections[worker] = connection
        self._on_connected(worker)
        if self.is_held:
            connection.hold_back(True)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)
        worker = connection.worker
        if worker is not None and self.hears(connection):
            del self._connections[worker]
            self._on_gone(worker)
        if not self._open and self._alone is not None:
            self._alone.set()

    async def _wait_until_alone(self) -> None:
        self._alone = asyncio.Event()
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._alone.wait(), LAST_WORDS_S)
