"""A Prefect server and a process worker on loopback, with everything of theirs in one folder.

For `make prefect`, and for tests: real servers that can be ended, killed and started again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx

from devtools.servers import LocalServers

POOL: Final = "raysweep"
START_S: Final = 120.0
QUIET: Final = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
    "DO_NOT_TRACK": "1",
}


class LocalPrefect(LocalServers):
    """A `server`, and a `worker` of one pool of processes. A context manager; ends all it started.

    Args:
        home: The folder of database, results and logs (`PREFECT_HOME`); a server started again continues
        there. port: Where the server listens, on 127.0.0.1.
        environment: Further environment variables of server, worker and flow runs.
        pool: The worker's pool; made where there is none.

    Raises: LocalServersError where one does not start.
    """

    def __init__(
        self, home: Path, *, port: int, environment: Mapping[str, str] | None = None, pool: str = POOL
    ) -> None:
        super().__init__(home)
        self.port = port
        self.pool = pool
        self._extra = dict(environment or {})

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
        """The address of its pages."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """The value for PREFECT_API_URL."""
        return f"{self.address}/api"

    @property
    def environment(self) -> dict[str, str]:
        """For processes that are to use this server."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        return kept | QUIET | {"PREFECT_HOME": str(self.home), "PREFECT_API_URL": self.api} | self._extra

    def start_server(self) -> None:
        """Start it, and wait until it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        self.launch("server", [*_prefect(), "server", "start", *where])
        self.wait_until(lambda: self._answers("GET", "/health") is True, START_S)

    def start_worker(self) -> None:
        """Start it, and wait until the server has heard of it."""
        which = ("--pool", self.pool, "--type", "process", "--name", "local")
        self.launch("worker", [*_prefect(), "worker", "start", *which])
        self.wait_until(self._has_worker, START_S)

    def close(self) -> None:
        """End the worker, which has things to tell the server, then the server, then whatever is left."""
        self.end("worker")
        super().close()

    def ask(self, method: str, path: str, json: Any = None) -> Any:
        """One call of the server's API. Raises httpx.HTTPError."""
        with httpx.Client(base_url=self.api, trust_env=False, timeout=60) as client:
            answer = client.request(method, path, json=json)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def command(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Prefect's own command line; what it prints. Raises: LocalServersError."""
        return self.output_of([*_prefect(), "--no-prompt", *arguments], timeout_s=timeout_s, COLUMNS="200")

    def _answers(self, method: str, path: str, json: Any = None) -> Any:
        with suppress(httpx.HTTPError):
            return self.ask(method, path, json)
        return None

    def _has_worker(self) -> bool:
        workers = self._answers("POST", f"/work_pools/{self.pool}/workers/filter", {})
        return any(worker["status"] == "ONLINE" for worker in workers or ())


def _prefect() -> list[str]:
    return [sys.executable, "-m", "prefect"]
