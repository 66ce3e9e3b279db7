"""A real Ray head on this machine: `ray start --head` with token authentication, on ports of its own.

For integration tests, and to try an orchestrator out. Every process of it, the drivers of its jobs included,
has a mark in its environment: by that they are found and ended, and nobody else's Ray is touched.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from devtools.servers import LocalServersError, processes_with

MARK: Final = "RAYSWEEP_LOCAL_HEAD"
START_S: Final = 150.0
START_TRIES: Final = 2
PORT_OPTIONS: Final = (
    "--dashboard-agent-listen-port",
    "--dashboard-agent-grpc-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
    "--ray-client-server-port",
    "--node-manager-port",
    "--object-manager-port",
)


class LocalHeadError(LocalServersError):
    """The head did not start, or did not end; says why."""


class LocalHead:
    """A head that can be started, killed with all its processes, and started again on the same ports.

    `address` is where its Jobs API is, `gcs_address` where drivers connect, `token` what both want. As a
    context manager it is started, and ended for good.

    Args:
        num_cpus: How many logical CPUs it offers.
        num_gpus: How many logical GPUs it offers.
        environment: Further environment variables of its processes.
        pythonpath: Folders whose modules its jobs can import; default: the current folder.
        options: Further options of `ray start`.

    Raises: LocalHeadError where it does not start, or does not end.
    """

    def __init__(
        self,
        *,
        num_cpus: int = 2,
        num_gpus: int = 0,
        environment: Mapping[str, str] | None = None,
        pythonpath: Sequence[str | os.PathLike[str]] = (".",),
        options: Sequence[str] = (),
    ) -> None:
        self.num_cpus = num_cpus
        self.num_gpus = num_gpus
        self._pythonpath = [str(Path(each).absolute()) for each in pythonpath]
        # Ray's sockets live in here, and their paths may not be longer than 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="rshead-", dir="/tmp"))
        self.token = f"local-token-{os.urandom(12).hex()}"
        self.gcs_port, self.dashboard_port, *self._ports = free_ports(2 + len(PORT_OPTIONS))
        self._mark = os.urandom(8).hex()
        self._extra = dict(environment or {})
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address of its Jobs API."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def gcs_address(self) -> str:
        """The address for its drivers, once it has started: Ray does not stay at the loopback."""
        return self._current.read_text().strip()

    @property
    def environment(self) -> dict[str, str]:
        """For a process that speaks to this head: the token, and where its modules are."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return clean | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": os.pathsep.join(self._pythonpath),
            # Jobs run `python`: it is to be this one.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', '')}",
        }

    @property
    def _current(self) -> Path:
        return self.folder / "ray_current_cluster"

    def start(self) -> None:
        """Start it, and wait until its Jobs API answers. A start that hangs is tried again."""
        for number in range(1, START_TRIES + 1):
            problem = self._try_to_start()
            if not problem:
                return
            self.kill()
            if number == START_TRIES:
                raise LocalHeadError(problem)

    def _try_to_start(self) -> str:
        """Start it; the problem, or empty once it answers."""
        self._current.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "raysweep.raycompat.patience", "start", "--head", "--block"),
            *("--node-ip-address", "127.0.0.1", "--port", str(self.gcs_port)),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(self.dashboard_port)),
            *("--num-cpus", str(self.num_cpus), "--num-gpus", str(self.num_gpus)),
            *("--object-store-memory", str(100 * 1024 * 1024)),
            *("--temp-dir", str(self.folder)),
            *self._options,
        ]
        for option, port in zip(PORT_OPTIONS, self._ports, strict=True):
            command += [option, str(port)]
        with open(self.folder / "start.log", "ab") as log:
            self._process = process = subprocess.Popen(
                command,
                cwd=self._pythonpath[0] if self._pythonpath else None,
                env=self.environment | self._extra | {MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        # The file comes last.
        while not (self._current.exists() and self.answers()):
            text = (self.folder / "start.log").read_text(errors="replace")
            if process.poll() is not None:
                return f"ray start ended with {process.returncode}: {text}"
            if time.monotonic() > deadline:
                return f"the head does not answer: {text}"
            time.sleep(0.2)
        return ""

    def answers(self) -> bool:
        """True if the Jobs API answers a request with the token, and the node is up."""
        request = urllib.request.Request(
            f"{self.address}/api/v0/nodes", headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            # No proxy: the head is on this machine.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=5) as response:
                # The dashboard answers before the node has joined its own cluster.
                return b'"ALIVE"' in response.read()
        except (OSError, urllib.error.URLError):
            return False

    def kill(self) -> None:
        """SIGKILL all its processes, the drivers and workers of its jobs too, and see that they are gone."""
        deadline = time.monotonic() + 30
        while pids := self.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # The first has this process as its parent: until it is waited for, it is a zombie.
            if self._process is not None:
                self._process.poll()
            if time.monotonic() > deadline:
                raise LocalHeadError(f"still there after SIGKILL: {pids}")
            time.sleep(0.02)
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        """Kill it and start it again, on the same ports with the same token: it knows nothing of before."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[int]:
        """The live processes of this head, those of its jobs included."""
        return processes_with(MARK, self._mark)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens at, below those that the system itself gives away: they stay free meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found
