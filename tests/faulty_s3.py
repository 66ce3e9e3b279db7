"""An S3 server on loopback that fails where a test wants it to: before or after it has done what it is asked.

| fault | what the client sees | was it done |
|---|---|---|
| `error` | status 500 | no |
| `slow` | the answer, late | yes |
| `reset` | the connection is reset | no |
| `lost` | the connection is reset | yes |
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Fault = Literal["error", "slow", "reset", "lost"]
FAULTS: tuple[Fault, ...] = ("error", "slow", "reset", "lost")
SLOW_S = 0.3
_RESET = struct.pack("ii", 1, 0)


class FaultyS3:
    """A WSGI application around moto's. `fired`: the faults that have happened."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._plan: dict[int, Fault] = {}
        self._concerns: Callable[[str, str], bool] = lambda method, path: True
        self._seen = 0
        self.fired: list[tuple[Fault, str, str]] = []

    @contextmanager
    def failing(
        self, plan: dict[int, Fault], concerns: Callable[[str, str], bool] = lambda method, path: True
    ) -> Iterator[FaultyS3]:
        """While this lasts, requests (method, path) that are concerned fail as planned, counted from 1."""
        with self._lock:
            self._plan, self._concerns, self._seen, self.fired = dict(plan), concerns, 0, []
        try:
            yield self
        finally:
            with self._lock:
                self._plan = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        fault = self._next(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if fault == "error":
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"as planned"]
        if fault == "slow":
            time.sleep(SLOW_S)  # the server's own slowness; nobody waits for an event here
        if fault == "reset":
            return _reset(environ)
        if fault == "lost":
            for _ in self._app(environ, lambda *answer: lambda data: None):
                pass
            return _reset(environ)
        return self._app(environ, start_response)

    def _next(self, method: str, path: str) -> Fault | None:
        with self._lock:
            if not self._plan or not self._concerns(method, path):
                return None
            self._seen += 1
            fault = self._plan.get(self._seen)
            if fault is not None:
                self.fired.append((fault, method, path))
            return fault


def _reset(environ: dict[str, Any]) -> Iterable[bytes]:
    sock: socket.socket = environ["werkzeug.socket"]
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()
    raise ConnectionResetError("as planned")


@contextmanager
def serving() -> Iterator[tuple[FaultyS3, str]]:
    """The server, and its endpoint."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

        def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
            self.close_connection = True

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    faulty = FaultyS3(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, faulty, threaded=True, request_handler=Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield faulty, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
