"""A real MLflow server on loopback, for tests in an environment that has its package."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

START_S = 600
STOP_S = 60


class RealMlflow:
    """The server, its database in a folder; stopped and started again it continues with that.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
        self._command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"]
        self._command += ["--default-artifact-root", str(folder / "artifacts")]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # Eight processes, unused here.
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        log = self._folder / "log"
        with log.open("a") as file:
            self._process = subprocess.Popen(
                self._command, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        until = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        """End it with all that it has started, and wait until nothing answers any more."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(60)
            self._process = None
        until = time.monotonic() + STOP_S
        while self._answers():
            assert time.monotonic() < until, "it answers still"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5).is_success
        except httpx.HTTPError:
            return False


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Its address; it ends with the block."""
    server = RealMlflow(folder)
    try:
        server.start()
        yield server.url
    finally:
        server.stop()
