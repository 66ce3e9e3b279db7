"""Prefect's temporary server: it outlives a Ctrl-C, for as long as the flow needs it, and never the flow.

A process of its own watches over the server: one that is killed (SIGKILL, SIGTERM, out of memory) has no time
to end it. The watcher holds the end of a pipe, which closes with this process, however that ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import PREFECT_API_URL

_WATCH: Final = """
import os, signal, sys, time
if not sys.stdin.read():
    for how, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 0.0)):
        try:
            os.kill(int(sys.argv[1]), how)
        except ProcessLookupError:
            break
        time.sleep(patience_s)
"""


class _WatchedServer(SubprocessASGIServer):
    """Prefect keeps one server for each process, and takes this one where it is made first."""

    def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
        process = super()._run_uvicorn_command()
        self.__dict__.setdefault("_watchers", []).append(_watch(process.pid))
        return process

    def stop(self) -> None:
        """End the server, then its watchers."""
        super().stop()
        for watcher in self.__dict__.pop("_watchers", ()):
            with suppress(BrokenPipeError, subprocess.TimeoutExpired):
                watcher.communicate(b"ended", timeout=5)


def _watch(pid: int) -> subprocess.Popen[bytes]:
    """Start what ends this process's child if this process ends without a word."""
    command = [sys.executable, "-I", "-S", "-c", _WATCH, str(pid)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


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
        server = _WatchedServer()
        server.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        server.stop()
