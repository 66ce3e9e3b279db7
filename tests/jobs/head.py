"""A real Ray head for the tests: `ray start --head` with token authentication, on ports of its own.

Every process of it, the drivers of its jobs included, has a mark in its environment: by that they are found
and ended, and nobody else's Ray is touched.
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
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
MARK: Final = "RAYSWEEP_TEST_HEAD"
START_S: Final = 100.0
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


class Head:
    """A head that can be started, killed with all its processes, and started again on the same ports.

    `address` is where its Jobs API is, `gcs_address` where drivers connect, `token` what both want.
    """

    def __init__(self, *, num_cpus: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.num_cpus = num_cpus
        # Ray's sockets live in here, and their paths may not be longer than 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="rshead-", dir="/tmp"))
        self.token = f"token-of-the-tests-{os.urandom(12).hex()}"
        self.gcs_port, self.dashboard_port, *self._ports = free_ports(2 + len(PORT_OPTIONS))
        self._mark = os.urandom(8).hex()
        self._extra = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def gcs_address(self) -> str:
        return f"127.0.0.1:{self.gcs_port}"

    @property
    def environment(self) -> dict[str, str]:
        """For a process that speaks to this head: the token, and the tests' modules."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return clean | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            # On a busy machine the raylet may take longer than the 30 s that Ray grants it.
            "RAY_raylet_start_wait_time_s": "120",
            "PYTHONPATH": str(ROOT),
            # Jobs run `python`: it is to be this one.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', '')}",
        }

    def start(self) -> None:
        """Start it, and wait until its Jobs API answers. A start that hangs is tried again."""
        for number in range(1, START_TRIES + 1):
            problem = self._try_to_start()
            if not problem:
                return
            assert number < START_TRIES, problem
            self.kill()

    def _try_to_start(self) -> str:
        """What is wrong; empty once it answers."""
        command = [
            *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"),
            *("--node-ip-address", "127.0.0.1", "--port", str(self.gcs_port)),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(self.dashboard_port)),
            *("--num-cpus", str(self.num_cpus), "--object-store-memory", str(100 * 1024 * 1024)),
            *("--temp-dir", str(self.folder)),
        ]
        for option, port in zip(PORT_OPTIONS, self._ports, strict=True):
            command += [option, str(port)]
        with open(self.folder / "start.log", "ab") as log:
            self._process = process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment | self._extra | {MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self.answers():
            text = (self.folder / "start.log").read_text(errors="replace")
            if process.poll() is not None:
                return f"ray start ended with {process.returncode}: {text}"
            if time.monotonic() > deadline:
                return f"the head does not answer: {text}"
            time.sleep(0.2)
        return ""

    def answers(self) -> bool:
        """Whether the Jobs API answers one who has the token, and the node is up."""
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
            assert time.monotonic() < deadline, f"still there: {pids}"
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
        needle = f"{MARK}={self._mark}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                if needle in (entry / "environ").read_bytes():
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(entry.name)] if state not in "ZX" else []
        return found


def free_ports(count: int) -> list[int]:
    """Ports nobody listens at, below those that the system itself gives away: they stay free meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found
