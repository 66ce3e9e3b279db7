"""What goes over the wire: a TCP relay that counts bytes, with TLS in front where asked."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit


class Relay:
    """Passes connections on to a server, and counts the bytes that clients send."""

    def __init__(self, address: str, certificate: Path | None = None) -> None:
        parts = urlsplit(address)
        self._target = (str(parts.hostname), int(parts.port or 0))
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.sent_bytes = 0
        scheme = "https" if certificate is not None else "http"
        self.address = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            if self._context is not None:
                client = self._context.wrap_socket(client, server_side=True)
            with socket.create_connection(self._target) as server:
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server, is_counted=True)
                back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, *, is_counted: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.sent_bytes += len(data) if is_counted else 0
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relayed(address: str, certificate: Path | None = None) -> Iterator[Relay]:
    relay = Relay(address, certificate)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.close()
        thread.join()
