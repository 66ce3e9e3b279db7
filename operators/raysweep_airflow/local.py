"""An Airflow on loopback with everything of it in one folder: for `make airflow`, and to try things out.

api-server, scheduler, triggerer and dag-processor are a process each. Every process of them, those of tasks
too, has a mark in its environment: by that they are found, and nobody else's is touched.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx

from raysweep.testing.head import LocalHead, processes_with

MARK: Final = "RAYSWEEP_LOCAL_AIRFLOW"
COMPONENTS: Final = ("api-server", "dag-processor", "scheduler", "triggerer")
USER: Final = "admin"
START_S: Final = 180.0
END_S: Final = 15.0


class LocalAirflowError(RuntimeError):
    """A command failed, or a server did not start; says why."""


class LocalAirflow:
    """A context manager that starts all of it, and ends all that it started.

    Args:
        home: Its `AIRFLOW_HOME`: database, logs, passwords. Begin with an empty one.
        dags: The folder of DAG files.
        port: Where it listens, on 127.0.0.1.
        environment: For all its processes, beside what this sets.

    Raises: LocalAirflowError where it does not start.
    """

    def __init__(
        self, home: Path, *, dags: Path, port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self.port = port
        self.password = secrets.token_urlsafe(9)
        self._dags = dags
        self._extra = dict(environment or {})
        self._mark = os.urandom(8).hex()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
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
    def environment(self) -> dict[str, str]:
        """For its processes, and for its command line."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        paths = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONWARNINGS": "ignore",
        }
        return kept | paths | settings(self.home, self._dags, self.port) | {MARK: self._mark} | self._extra

    def start(self) -> None:
        """Make the database, start all components, and wait until they say that they are well."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "passwords.json").write_text(json.dumps({USER: self.password}))
        self.run("db", "migrate")
        for name in COMPONENTS:
            self._start(name)
        deadline = time.monotonic() + START_S
        while not self._is_well():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise LocalAirflowError(
                        f"the {name} ended with {process.returncode}: {self.log(name)[-2000:]}"
                    )
            if time.monotonic() > deadline:
                raise LocalAirflowError(f"it does not come up; see the logs in {self.home}")
            time.sleep(0.3)

    def run(self, *arguments: str, timeout_s: float = 180.0) -> str:
        """Airflow's own command line; what it prints. Raises: LocalAirflowError."""
        done = subprocess.run(
            [*_airflow(), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise LocalAirflowError(f"airflow {' '.join(arguments)}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def start_command(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Airflow's own command line in the background, in a process group of its own."""
        with open(log, "ab") as file:
            return subprocess.Popen(
                [*_airflow(), *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to who started this, which ends them in order.
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """What a component has written."""
        path = self.home / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def processes(self) -> list[int]:
        """All live processes of it."""
        return processes_with(MARK, self._mark)

    def close(self) -> None:
        """End the components as a deployment does, then whatever is left."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + END_S
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._running.values():
                process.poll()
            time.sleep(0.05)
        self._running.clear()

    def _start(self, name: str) -> None:
        self._running[name] = self.start_command(name, log=self.home / f"{name}.log")

    def _is_well(self) -> bool:
        with suppress(httpx.HTTPError, ValueError, KeyError):
            answer = httpx.get(f"{self.address}/api/v2/monitor/health", trust_env=False, timeout=10)
            health: Any = answer.json()
            parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
            return all(health[part]["status"] == "healthy" for part in parts)
        return False


def settings(home: Path, dags: Path, port: int) -> dict[str, str]:
    """The environment of an Airflow in `home`: SQLite, LocalExecutor, one user, no examples."""
    sections: dict[str, dict[str, object]] = {
        "core": {
            "load_examples": False,
            "dags_folder": dags,
            "executor": "LocalExecutor",
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_passwords_file": home / "passwords.json",
            "execution_api_server_url": f"http://127.0.0.1:{port}/execution/",
            "dags_are_paused_at_creation": False,
            "test_connection": "Enabled",
        },
        "database": {"sql_alchemy_conn": f"sqlite:///{home}/airflow.db"},
        "logging": {"base_log_folder": home / "logs"},
        "api": {
            "host": "127.0.0.1",
            "port": port,
            "base_url": f"http://127.0.0.1:{port}",
            "workers": 1,
            "secret_key": secrets_of(home, "api"),
        },
        "api_auth": {"jwt_secret": secrets_of(home, "jwt")},
        "dag_processor": {"refresh_interval": 10, "min_file_process_interval": 10},
        "scheduler": {"enable_health_check": False},
        "usage_data_collection": {"enabled": False},
    }
    return {"AIRFLOW_HOME": str(home)} | {
        f"AIRFLOW__{section.upper()}__{name.upper()}": str(value)
        for section, values in sections.items()
        for name, value in values.items()
    }


def secrets_of(home: Path, name: str) -> str:
    """A secret that all processes of a home share: made once, kept in a file that only this user reads."""
    path = home / f"{name}.secret"
    with suppress(FileExistsError):
        home.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
    return path.read_text()


def connection_to(head: LocalHead, storage_path: str) -> dict[str, str]:
    """The environment variable that makes the connection `raysweep_default` to a head."""
    fields = {
        "conn_type": "raysweep",
        "host": "http://127.0.0.1",
        "port": head.dashboard_port,
        "password": head.token,
        "extra": {"storage_path": storage_path},
    }
    return {"AIRFLOW_CONN_RAYSWEEP_DEFAULT": json.dumps(fields)}


def _airflow() -> list[str]:
    return [sys.executable, "-m", "airflow"]
