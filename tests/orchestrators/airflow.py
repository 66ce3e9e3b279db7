"""Airflow as the scenarios see it: a night is a run of one of the DAGs in `tests/airflow/dags/nights.py`."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from devtools.airflow.local import COMPONENTS
from tests.airflow.servers import Airflow, wait_until
from tests.orchestrators.nights import Night, State, Step

_STATES: Final[dict[str | None, State]] = {
    "success": "success",
    "failed": "failed",
    "skipped": "skipped",
    "upstream_failed": "skipped",
    "running": "running",
    "deferred": "running",
    "awaiting_input": "running",
}
_numbers = itertools.count(1)


class AirflowOrchestrator:
    """Runs nights on real servers. A run is named `<dag>:<run id>`."""

    def __init__(self, servers: Airflow) -> None:
        self.servers = servers

    def begin(self, night: Night) -> str:
        dag_id = _dag_of(night)
        self.servers.wait_for_dag(dag_id)
        run_id = f"night-{os.getpid()}-{next(_numbers)}"
        # As with a file beside a DAG: what it says may change between two tries.
        conf: dict[str, Any] = {"sweep": str(self._write(run_id, night))}
        conf |= {"train": dict(night.train or {}), "gate": dict(night.gate or {}), "job": dict(night.job)}
        conf |= {"approval": night.approval, "registry": night.registry}
        self.servers.trigger_run(dag_id, run_id, conf)
        return f"{dag_id}:{run_id}"

    def _write(self, run_id: str, night: Night) -> Path:
        path = self.servers.home / f"{run_id}.json"
        path.write_text(json.dumps(night.sweep))
        return path

    def state(self, run: str, step: str) -> State:
        return _STATES.get(self.servers.state(*_split(run), step), "waiting")

    def tries(self, run: str, step: Step) -> int:
        return int(self.servers.task(*_split(run), step)["try_number"])

    def handed_on(self, run: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.servers.xcom(*_split(run), "sweep")
        return found

    def message(self, run: str, step: Step) -> str:
        return self.servers.logs(*_split(run), step)

    def shown(self, run: str) -> str:
        """Every log of every component and task, and every row of the database."""
        paths = [*self.servers.home.glob("*.log"), *(self.servers.home / "logs").rglob("*.log")]
        texts = [path.read_text(errors="replace") for path in paths]
        with closing(sqlite3.connect(self.servers.home / "airflow.db")) as database:
            texts += list(database.iterdump())
        return "\n".join(texts)

    def kill_step(self, run: str) -> None:
        dag_id, run_id = _split(run)
        self.servers.wait_state(dag_id, run_id, "sweep", "deferred")
        self.servers.kill("triggerer")
        self.servers.start_component("triggerer")

    def kill_submission(self, run: str) -> None:
        pids = self.servers.task_processes(self.servers.task(*_split(run), "sweep")["id"])
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def move(self, run: str, night: Night) -> str:
        dag_id, run_id = _split(run)
        self._write(run_id, night)
        self._wait_for_end(run)
        self.servers.clear(dag_id, run_id, "sweep", downstream=True)
        return run

    def restart_servers(self) -> None:
        for name in reversed(COMPONENTS):
            self.servers.stop_component(name)
        for name in COMPONENTS:
            self.servers.start_component(name)
        self.servers.wait_until_well()

    def cancel(self, run: str) -> None:
        self.servers.patch_run(*_split(run), "failed")

    def again(self, run: str) -> None:
        self._wait_for_end(run)
        self.servers.clear(*_split(run), "sweep")

    def _wait_for_end(self, run: str) -> None:
        """Its last task has ended, and soon its run: on SQLite, the scheduler undoes a clear in between."""
        wait_until(lambda: self.servers.run(*_split(run))["state"] in ("success", "failed"), timeout_s=120)

    def reach(self, address: str) -> None:
        name, url = "raysweep_default", urlsplit(address)
        fields = {
            "connection_id": name,
            "conn_type": "raysweep",
            "host": f"http://{url.hostname}",
            "port": url.port,
        }
        self.servers.call("PATCH", f"/connections/{name}", fields, update_mask=["host", "port"])


def _dag_of(night: Night) -> str:
    if night.approval is not None:
        return "night_asked"
    if night.job:
        return "night_leased"
    if night.gate is not None:
        return "night_gated"
    if night.train is None:
        return "night_alone"
    return "night" if night.accept_partial else "night_strict"


def _split(run: str) -> tuple[str, str]:
    dag_id, _, run_id = run.partition(":")
    return dag_id, run_id
