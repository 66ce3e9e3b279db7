"""The dashboard's server: uvicorn on a thread, on a socket of ours, within the limits of `connections`."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from uvicorn import Config, Server

from raysweep.errors import SpecError
from raysweep.pages.dashboard.access import Access
from raysweep.pages.dashboard.app import make_app
from raysweep.pages.dashboard.connections import IDLE_S, MAX_CONNECTIONS, MAX_HEAD_BYTES, Connection
from raysweep.pages.dashboard.runs import Runs
from raysweep.storage.objects.opening import open_store

END_S: Final = 1
"""The time for answers that are being sent when the server ends."""


@contextmanager
def serving(storage: str, access: Access, port: int) -> Iterator[tuple[str, Server]]:
    """A server of the runs at a storage path; gives its address, and the server, which serves already.

    Args:
        storage: The storage path.
        access: Who may ask, and the host to bind.
        port: 0: any free one.

    Raises:
        SpecError: The port cannot be bound.
        StorageError: The storage path cannot be opened.
    """
    runs = Runs(open_store(storage))
    bound = _bind(access.host, port)
    server = Server(_config(runs, access))
    thread = threading.Thread(target=server.run, args=([bound],), name="raysweep-dashboard", daemon=True)
    thread.start()
    host = f"[{access.host}]" if ":" in access.host else access.host
    try:
        yield f"http://{host}:{bound.getsockname()[1]}/", server
    finally:
        server.should_exit = True
        thread.join()
        runs.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        problem = f"{host}:{port} cannot be bound: {error.strerror or error}"
        raise SpecError("--port", problem, "name a free port, or 0 for any") from error


def _config(runs: Runs, access: Access) -> Config:
    """Requests are not logged: an address may hold the token."""
    return Config(
        make_app(runs, access),
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=MAX_CONNECTIONS,
        timeout_keep_alive=int(IDLE_S),
        timeout_graceful_shutdown=END_S,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
