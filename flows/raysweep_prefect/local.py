"""A Prefect server and a process worker on loopback, with everything of theirs in one folder.

For `make prefect`, and for tests: real servers that can be ended, killed and started again. Every process of
them, the flow runs' too, has a mark in its environment: by that they are found, and nobody else's is touched.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx

from raysweep.testing.head import processes_with

MARK: Final = "RAYSWEEP_LOCAL_PREFECT"
POOL: Final = "raysweep"
START_S: Final = 120.0
END_S: Final = 20.0
QUIET: Final = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
    "DO_NOT_TRACK": "1",
}


class LocalPrefectError(RuntimeError):
    """A server or the worker did not start; says why."""


class LocalPrefect:
    """A server and a worker that serves one work pool of processes. A context manager; ends all it started.

    Args:
        home: The folder of database, results and logs (`PREFECT_HOME`); a server started again goes on there.
        port: Where the server listens, on 127.0.0.1.
        environment: Further environment variables of server, worker and flow runs.
        pool: The worker's pool; made where there is none.

    Raises: LocalPrefectError where one does not start.
    """

    def __init__(
        self, home: Path, *, port: int, environment: Mapping[str, str] | None = None, pool: str = POOL
    ) -> None:
        self.home = home
        self.port = port
        self.pool = pool
        self._extra = dict(environment or {})
        self._mark = os.urandom(8).hex()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self.start_server()
            self.start_worker()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where its pages are."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """What PREFECT_API_URL is to be."""
        return f"{self.address}/api"

    @property
    def environment(self) -> dict[str, str]:
        """For processes that are to use this server."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        ours = {"PREFECT_HOME": str(self.home), "PREFECT_API_URL": self.api, MARK: self._mark}
        return kept | QUIET | ours | self._extra

    def start_server(self) -> None:
        """Start it, and wait until it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._start("server", "server", "start", "--host", "127.0.0.1", "--port", str(self.port))
        self._wait("server", lambda: self.ask("GET", "/health") is True)

    def start_worker(self) -> None:
        """Start it, and wait until the server has heard of it."""
        self._start("worker", "worker", "start", "--pool", self.pool, "--type", "process", "--name", "local")
        self._wait("worker", self._has_worker)

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End the `server` or the `worker`, and wait for it. The flow runs of a killed worker live on."""
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def ask(self, method: str, path: str, json: Any = None) -> Any:
        """One call of the server's API. Raises httpx.HTTPError."""
        with httpx.Client(base_url=self.api, trust_env=False, timeout=60) as client:
            answer = client.request(method, path, json=json)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def run(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """Prefect's own command line. Raises subprocess.CalledProcessError."""
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
            env=self.environment | {"COLUMNS": "200"},
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return done.stdout

    def log(self, name: str) -> str:
        """What the `server` or the `worker` has written."""
        path = self.home / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def processes(self) -> list[int]:
        """All live processes: server, worker, flow runs."""
        return processes_with(MARK, self._mark)

    def close(self) -> None:
        """End the worker, then the server, then whatever is left."""
        for name in ("worker", "server"):
            self.end(name)
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _start(self, name: str, *arguments: str) -> None:
        with open(self.home / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "prefect", *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to who started this, which ends them in order.
                start_new_session=True,
            )

    def _wait(self, name: str, is_up: Any) -> None:
        deadline = time.monotonic() + START_S
        while True:
            with suppress(httpx.HTTPError):
                if is_up():
                    return
            process = self._running[name]
            if process.poll() is not None:
                raise LocalPrefectError(
                    f"the {name} ended with {process.returncode}: {self.log(name)[-2000:]}"
                )
            if time.monotonic() > deadline:
                raise LocalPrefectError(f"the {name} does not answer: {self.log(name)[-2000:]}")
            time.sleep(0.2)

    def _has_worker(self) -> bool:
        workers = self.ask("POST", f"/work_pools/{self.pool}/workers/filter", {})
        return any(worker["status"] == "ONLINE" for worker in workers)
