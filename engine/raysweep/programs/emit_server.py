"""The socket at which `raysweep emit` reports: requests in the order of their connections, one answer each.

A request counts once its line is whole, whether or not the client that sent it still lives.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raysweep.programs.readers.lines import MAX_LINE_BYTES

_MAX_PATH: Final = 100
"""A Unix socket's path has 107 characters at most."""


@dataclass(slots=True)
class Request:
    """One `raysweep emit`."""

    metrics: dict[str, Any]
    checkpoint: str | None
    infeasible: str | None
    """The reason why the config cannot work; None: it is a report."""
    _sock: socket.socket

    def answer(self, **fields: Any) -> None:
        """Answer it, once."""
        with suppress(OSError), self._sock:
            self._sock.setblocking(True)
            self._sock.settimeout(5)
            self._sock.sendall(json.dumps(fields).encode() + b"\n")


class EmitServer:
    """Listens until it is closed; `selector` wakes who waits for requests."""

    def __init__(self, folder: Path, selector: selectors.BaseSelector) -> None:
        path = folder / "emit"
        self._own: tempfile.TemporaryDirectory[str] | None = None
        if len(os.fsencode(path)) > _MAX_PATH:
            self._own = tempfile.TemporaryDirectory(prefix="raysweep-emit-", dir="/tmp")
            path = Path(self._own.name) / "emit"
        self.address = str(path)
        self._selector = selector
        self._partial: dict[socket.socket, bytearray] = {}
        self._order: deque[socket.socket] = deque()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        self._sock.bind(self.address)
        os.chmod(self.address, 0o600)
        self._sock.listen(1024)
        selector.register(self._sock, selectors.EVENT_READ)

    def read(self) -> list[Request]:
        """The requests that are whole by now, in the order in which they connected."""
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                break
            sock.setblocking(False)
            self._partial[sock] = bytearray()
            self._order.append(sock)
            self._selector.register(sock, selectors.EVENT_READ)
        found: list[Request] = []
        for sock in list(self._order):
            is_whole = self._receive(sock)
            if is_whole is None:
                continue
            self._order.remove(sock)
            self._selector.unregister(sock)
            line = bytes(self._partial.pop(sock))
            request = _parse(line, sock) if is_whole else None
            if request is None:
                sock.close()
            else:
                found.append(request)
        return found

    def _receive(self, sock: socket.socket) -> bool | None:
        """True if its line is whole; None while that cannot be told."""
        received = self._partial[sock]
        while not received.endswith(b"\n"):
            try:
                part = sock.recv(65536)
            except BlockingIOError:
                return None
            except OSError:
                return False
            if not part or len(received) > MAX_LINE_BYTES:
                return False
            received += part
        return True

    def close(self) -> None:
        """Listen no more; who waits for an answer gets none."""
        for sock in (*self._order, self._sock):
            with suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            sock.close()
        with suppress(OSError):
            os.unlink(self.address)
        if self._own is not None:
            self._own.cleanup()


def _parse(line: bytes, sock: socket.socket) -> Request | None:
    try:
        found = json.loads(line)
        metrics, checkpoint, infeasible = found["metrics"], found.get("checkpoint"), found.get("infeasible")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(metrics, dict) or not isinstance(checkpoint, str | None):
        return None
    if not isinstance(infeasible, str | None):
        return None
    return Request(metrics, checkpoint, infeasible, sock)
