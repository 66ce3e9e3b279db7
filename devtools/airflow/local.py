"""An Airflow on loopback with everything of it in one folder, for `make airflow` and for tests.

api-server, dag-processor, scheduler and triggerer are a process each.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Self

import httpx

from devtools.head import LocalHead
from devtools.servers import LocalServers

Component = Literal["api-server", "dag-processor", "scheduler", "triggerer"]
COMPONENTS: Final[tuple[Component, ...]] = ("api-server", "dag-processor", "scheduler", "triggerer")
USER: Final = "admin"
START_S: Final = 180.0


class LocalAirflow(LocalServers):
    """A context manager that starts all of it, and ends all that it started.

    Args:
        home: Its `AIRFLOW_HOME`: database, logs, passwords. Begin with an empty one.
        dags: The folder of DAG files.
        port: Where it listens, on 127.0.0.1.
        environment: For all its processes, beside what this sets, or in its place.

    Raises: LocalServersError where it does not start.
    """

    def __init__(
        self, home: Path, *, dags: Path, port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(home)
        self.port = port
        self.password = secrets.token_urlsafe(9)
        self._dags = dags
        self._extra = dict(environment or {})

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
        """The address of its pages."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """For its processes, and for its command line."""
        # Where Ray is, and the way in, is the connection's to say.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "RAY_"))}
        paths = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONWARNINGS": "ignore",
        }
        return kept | paths | settings(self.home, self._dags, self.port) | self._extra

    def start(self) -> None:
        """Make the database, start all components, and wait until they say that they are well."""
        self.home.mkdir(parents=True, exist_ok=True)
        write_secret(self.home / "passwords.json", json.dumps({USER: self.password}))
        self.command("db", "migrate")
        for name in COMPONENTS:
            self.start_component(name)
        self.wait_until_well()

    def start_component(self, name: Component) -> None:
        """Start one; returns at once."""
        self.launch(name, [*_airflow(), name])

    def wait_until_well(self) -> None:
        """Wait until all components say that they are."""
        self.wait_until(self._is_well, START_S)

    def command(self, *arguments: str, timeout_s: float = 400.0) -> str:
        """Airflow's own command line; what it prints. Raises: LocalServersError."""
        return self.output_of([*_airflow(), *arguments], timeout_s=timeout_s)

    def start_command(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Airflow's own command line in the background; it writes to `<name>.log`."""
        return self.launch(name, [*_airflow(), *arguments])

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
        # All components write to it: each waits for the others.
        "database": {"sql_alchemy_conn": f"sqlite:///{home}/airflow.db?timeout=60"},
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
    home.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        write_secret(path, secrets.token_urlsafe(48), is_new=True)
    return path.read_text()


def write_secret(path: Path, text: str, *, is_new: bool = False) -> None:
    """A file that only this user reads. Raises: FileExistsError where there is one that is to be new."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)  # one of an earlier start may have had another mode
        file.write(text)


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
