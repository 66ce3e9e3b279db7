"""Airflow as the tests have it: short intervals, a client of its API, ways to make parts of it suffer."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import httpx

from devtools.airflow.local import USER, Component, LocalAirflow
from devtools.head import free_ports

ROOT: Final = Path(__file__).parents[2]

State = str | None
ENDED: Final = ("success", "failed", "skipped", "upstream_failed", "removed")


class AirflowAnswerError(RuntimeError):
    """An answer of the API was none of success."""


class Airflow(LocalAirflow):
    """All servers of one Airflow, and what its users do with it.

    Args:
        home: An empty folder: its `AIRFLOW_HOME`, and the home folder of all its processes.
        dags: The folder of DAG files.
        parallelism: How many tasks run at once; deferred ones do not count.
        environment: For all processes, beside what this sets.
    """

    def __init__(
        self,
        home: Path,
        *,
        dags: Path,
        parallelism: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        port, *log_ports = free_ports(3)
        # Each Airflow on this machine serves its logs somewhere else.
        ports = dict(zip(("WORKER", "TRIGGER"), map(str, log_ports), strict=True))
        logs = {f"AIRFLOW__LOGGING__{name}_LOG_SERVER_PORT": port for name, port in ports.items()}
        ours = _short_intervals(home, parallelism) | logs | dict(environment or {})
        super().__init__(home, dags=dags, port=port, environment=ours)
        self._client: httpx.Client | None = None
        self.vault = home
        """The folder of its secrets backend (`tests.airflow.vault`), where it has one."""

    @property
    def login(self) -> dict[str, str]:
        """What the login page asks for."""
        return {"username": USER, "password": self.password}

    def stop_component(self, name: Component) -> None:
        """End one as a deployment does: SIGTERM, and wait; what is left then is killed."""
        self.end(name)
        self.kill(name)

    @contextmanager
    def paused(self, name: Component) -> Iterator[None]:
        """One component stands still, as a machine does that is short of everything."""
        pids = self.processes(name)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End everything, at once: there is nothing to keep."""
        if self._client is not None:
            self._client.close()
        self.kill()

    def task_processes(self, task_instance_id: str) -> list[int]:
        """The processes in which a try of a task runs: its runner, by the title that Airflow gives it."""
        needle = f"airflow worker -- {task_instance_id}"
        found = []
        for pid in self.processes("scheduler"):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").startswith(needle):
                    found.append(pid)
        return found

    # --- its API

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """A call of the public API, without `/api/v2`. Raises: AirflowAnswerError for other than 2xx.

        On a loaded machine SQLite gives up a write that waits for another: Airflow says 500 and has changed
        nothing, and a person presses the button again.
        """
        if self._client is None:
            token = self._plain("POST", "/auth/token", self.login)["access_token"]
            self._client = httpx.Client(
                base_url=f"{self.address}/api/v2",
                headers={"Authorization": f"Bearer {token}"},
                trust_env=False,
                timeout=120,
            )
        for _ in range(3):
            response = self._client.request(method, path, json=body, params=query)
            if not (response.status_code == 500 and '"Database error"' in response.text):
                break
            time.sleep(1.0)
        return _answer(response)

    def _plain(self, method: str, path: str, body: Any = None) -> Any:
        return _answer(httpx.request(method, f"{self.address}{path}", json=body, trust_env=False, timeout=60))

    def wait_for_dag(self, dag_id: str, timeout_s: float = 180.0) -> None:
        """Wait until a DAG is known, and make it run."""

        def is_known() -> bool:
            with suppress(AirflowAnswerError):
                self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
                return True
            return False

        wait_until(is_known, f"no DAG {dag_id}: {self._import_errors()}", timeout_s)

    def _import_errors(self) -> str:
        with suppress(AirflowAnswerError, httpx.HTTPError):
            return str(self.call("GET", "/importErrors")["import_errors"])
        return "?"

    def trigger_run(
        self,
        dag_id: str,
        run_id: str,
        conf: Mapping[str, Any] | None = None,
        logical_date: str | None = None,
    ) -> str:
        """Begin a run; its id."""
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": dict(conf or {})}
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """A run."""
        return cast(dict[str, Any], self.call("GET", f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}"))

    def task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """A task instance."""
        return cast(dict[str, Any], self.call("GET", _path(dag_id, run_id, task_id, map_index)))

    def state(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> State:
        """A task instance's state."""
        return cast(State, self.task(dag_id, run_id, task_id, map_index)["state"])

    def wait_state(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        *expected: str,
        map_index: int = -1,
        timeout_s: float = 120.0,
    ) -> str:
        """Wait until a task is in one of these states; ended in another one, it fails with the task's log."""
        not_there_yet = (AirflowAnswerError,) if map_index >= 0 else ()
        deadline = time.monotonic() + timeout_s
        while True:
            state: State = None
            with suppress(*not_there_yet):
                state = self.state(dag_id, run_id, task_id, map_index)
            if state in expected:
                return str(state)
            is_late = time.monotonic() > deadline
            if is_late or state in ENDED:
                what = "after all the time" if is_late else "instead"
                log = self.logs(dag_id, run_id, task_id, map_index=map_index)[-6000:]
                raise AssertionError(f"{task_id} is {state} {what}, not {expected}:\n{log}")
            time.sleep(0.2)

    def patch_state(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Mark a task as a person does."""
        path = f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}"
        query = {"map_index": map_index} if map_index >= 0 else {}
        self.call("PATCH", path + (f"/{map_index}" if map_index >= 0 else ""), {"new_state": state}, **query)

    def patch_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Mark a run as a person does."""
        self.call("PATCH", f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}", {"state": state})

    def clear(self, dag_id: str, run_id: str, *task_ids: str, downstream: bool = False) -> None:
        """Clear tasks of a run as a person does."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "only_failed": False,
            "include_downstream": downstream,
            "reset_dag_runs": True,
        }
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", body)

    def xcom(
        self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1
    ) -> Any:
        """An XCom's value; None for none."""
        path = f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}/xcomEntries/{quote(key)}"
        with suppress(AirflowAnswerError):
            return self.call("GET", path, map_index=map_index, deserialize=True)["value"]
        return None

    def links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str]:
        """A task's links, by name."""
        path = f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}/links"
        return cast(dict[str, str], self.call("GET", path)["extra_links"])

    def logs(self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1) -> str:
        """The logs of all tries of a task, as a person sees them."""
        tries = self.task(dag_id, run_id, task_id, map_index)["try_number"]
        path = f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}/logs"
        texts = []
        for number in range(1, tries + 1):
            with suppress(AirflowAnswerError):
                answer = self.call("GET", f"{path}/{number}", map_index=map_index, full_content=True)
                texts += [_line(each) for each in answer["content"]]
        return "\n".join(texts)

    def stored(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """What the task state store holds for a task."""
        path = f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}/state-store"
        answer = self.call("GET", path, map_index=map_index)
        rows = next(value for value in answer.values() if isinstance(value, list))
        return {row["key"]: row["value"] for row in rows}

    def add_connection(self, conn_id: str, **fields: Any) -> None:
        """Make a connection."""
        self.call("POST", "/connections", {"connection_id": conn_id, **fields})


def wait_until(check: Callable[[], Any], problem: str = "waited in vain", timeout_s: float = 60.0) -> Any:
    """Wait for it to be true; what it was then."""
    deadline = time.monotonic() + timeout_s
    while not (value := check()):
        assert time.monotonic() < deadline, problem
        time.sleep(0.2)
    return value


def _short_intervals(home: Path, parallelism: int) -> dict[str, str]:
    key = base64.urlsafe_b64encode(home.name.encode().ljust(32, b"k")[:32]).decode()
    sections: dict[str, dict[str, Any]] = {
        "core": {"parallelism": parallelism, "fernet_key": key, "dags_are_paused_at_creation": True},
        "dag_processor": {
            "refresh_interval": 2,
            # A changed file is parsed at once; each parse of one takes 0.7 s of a core.
            "min_file_process_interval": 60,
            "bundle_refresh_check_interval": 1,
            "parsing_processes": 1,
            "stale_dag_threshold": 600,
        },
        "scheduler": {
            "scheduler_heartbeat_sec": 1,
            "scheduler_idle_sleep_time": 0.2,
            "job_heartbeat_sec": 1,
            "task_instance_heartbeat_timeout": 15,
            "task_instance_heartbeat_timeout_detection_interval": 2,
            "trigger_timeout_check_interval": 1,
        },
        "triggerer": {"job_heartbeat_sec": 1, "triggerer_health_check_threshold": 8},
        "workers": {"min_heartbeat_interval": 1},
    }
    settings = {
        f"AIRFLOW__{section.upper()}__{name.upper()}": str(value)
        for section, values in sections.items()
        for name, value in values.items()
    }
    # This checkout's, also where another one is installed.
    roots = os.pathsep.join(str(ROOT / name) for name in (".", "engine", "operators", "flows"))
    return settings | {"HOME": str(home), "PYTHONPATH": roots, "NO_PROXY": "*"}


def _answer(response: httpx.Response) -> Any:
    if not response.is_success:
        request = response.request
        raise AirflowAnswerError(
            f"{request.method} {request.url.path}: {response.status_code} {response.text[:2000]}"
        )
    return response.json() if response.content else None


def _path(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    mapped = f"/{map_index}" if map_index >= 0 else ""
    return f"/dags/{dag_id}/dagRuns/{_quoted(run_id)}/taskInstances/{task_id}{mapped}"


def _quoted(run_id: str) -> str:
    return quote(run_id, safe="")


def _line(entry: Any) -> str:
    """One line of a task's log, its error's text and frames included."""
    if not isinstance(entry, Mapping):
        return str(entry)
    parts = [str(entry.get("event", ""))]
    errors = entry.get("error_detail") or ()
    parts += [f"{error.get('exc_type')}: {error.get('exc_value')}" for error in errors]
    return " ".join(parts)
