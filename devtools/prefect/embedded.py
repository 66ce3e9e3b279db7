"""Prefect's temporary server, started so that it outlives a Ctrl-C for as long as the flow needs it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import PREFECT_API_URL


@contextmanager
def prefect_server() -> Iterator[None]:
    """Start Prefect's temporary server, unless the user's settings name a real one.

    A terminal sends Ctrl-C to every process in the foreground. The server must not end by it: the flow is
    about to end its trials, and says so to the server. Only the server's process inherits the blocked signal.
    """
    if PREFECT_API_URL.value():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server = SubprocessASGIServer()
        server.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        server.stop()
