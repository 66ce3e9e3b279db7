"""A TCP proxy before a server, to take the server away and give it back while somebody uses it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Mode = Literal["open", "cut", "stalled"]
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Listens at `port` of loopback and passes everything on to the upstream.

    `cut`: connections are reset, new ones refused. `stall`: they hang. `restore`: at work again; connections
    that hung are reset. `delay_s`: waits so long before each piece that is passed on. `stall_at`: a piece
    that holds these bytes stalls it, and is kept; `release`: what was kept continues its way. `rewrite`: what
    becomes of each piece that a client sends, as a gateway does with its own tokens.
    """

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self.delay_s = 0.0
        self.stall_at = b""
        self.rewrite: Callable[[bytes], bytes] = bytes
        self.hit = 0
        """How many connections were reset, or hung."""
        self._mode: Mode = "open"
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self._listen()

    def cut(self) -> None:
        """The server is gone."""
        with self._changed:
            self._mode = "cut"
            self._stop_listening()
            self._reset_all()

    def stall(self) -> None:
        """The server hangs."""
        with self._changed:
            self._mode = "stalled"
            self.hit += len(self._sockets)

    @property
    def is_stalled(self) -> bool:
        """Whether connections hang."""
        return self._mode == "stalled"

    def release(self) -> None:
        """The server answers again; what hung was only slow."""
        with self._changed:
            self.stall_at, self._mode = b"", "open"
            self._changed.notify_all()

    def restore(self) -> None:
        """The server is back."""
        with self._changed:
            if self._mode == "stalled":
                self._reset_all()
            self._mode = "open"
            self._changed.notify_all()
        if self._listener is None:
            self._listen()

    def close(self) -> None:
        """End it."""
        self.cut()

    def _listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            with suppress(OSError):  # wakes the thread that accepts
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self._listener = None

    def _reset_all(self) -> None:
        self.hit += len(self._sockets) // 2
        for sock in self._sockets:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.upstream)
            except OSError:
                client.close()
                continue
            with self._changed:
                if self._mode == "cut":
                    client.close()
                    server.close()
                    continue
                self.hit += self._mode == "stalled"
                self._sockets |= {client, server}
            for source, target, change in ((client, server, self._rewritten), (server, client, bytes)):
                threading.Thread(target=self._pass_on, args=(source, target, change), daemon=True).start()

    def _rewritten(self, data: bytes) -> bytes:
        return self.rewrite(data)

    def _pass_on(
        self, source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]
    ) -> None:
        try:
            while data := change(source.recv(1 << 16)):
                if self.stall_at and self.stall_at in data:
                    self.stall()
                with self._changed:
                    self._changed.wait_for(lambda: self._mode != "stalled")
                if self.delay_s:
                    time.sleep(self.delay_s)
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            with self._changed:
                self._sockets.discard(sock)
            sock.close()
