"""Prefect's part in the scenarios: the deployment of `nightly_sweep` on a real server and process worker."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx

from devtools.prefect.local import LocalPrefect
from devtools.servers import processes_with
from tests.jobs.head import ROOT, Head
from tests.orchestrators.nights import Night, State, Step

BLOCK: Final = "ray"
QUICK: Final = {
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "5",
    "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "0.5",
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_TRIGGERS_PG_NOTIFY_ENABLED": "false",
}
_STATES: Final[Mapping[str, State]] = {
    "SCHEDULED": "waiting",
    "PENDING": "waiting",
    "PAUSED": "waiting",
    "RUNNING": "running",
    "COMPLETED": "success",
    "FAILED": "failed",
    "CRASHED": "failed",
    "CANCELLING": "cancelled",
    "CANCELLED": "cancelled",
}
_TERMINAL: Final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class PrefectOrchestrator:
    """A night is a run of the deployment `nightly-sweep/night`; a run is named by its flow run's id."""

    def __init__(self, servers: LocalPrefect) -> None:
        self.servers = servers
        self._refused: dict[str, str] = {}
        self._deployment = deploy(servers, "nightly_sweep", "night", {})

    # --- what the scenarios need

    def parameters(self, night: Night, key: str | None) -> dict[str, Any]:
        """What the deployment is given for this night."""
        parameters: dict[str, Any] = {
            "spec": dict(night.sweep),
            "key": key,
            "cluster": BLOCK,
            "accept_partial": night.accept_partial,
            "retries": night.retries,
            "retry_delay_s": 1,
        }
        if night.train is not None:
            parameters["train_spec"] = dict(night.train)
        if night.gate is not None:
            parameters["gate_spec"] = dict(night.gate)
        if night.job:
            parameters["job"] = dict(night.job)
        return parameters

    def begin(self, night: Night, key: str | None = None) -> str:
        parameters = self.parameters(night, key)
        path = f"/deployments/{self._deployment}/create_flow_run"
        try:
            asked = {"parameters": parameters, "idempotency_key": uuid4().hex}
            return str(self._patiently("POST", path, asked)["id"])
        except httpx.HTTPStatusError as error:
            # Prefect checks parameters before there is a run, and tells the person who asked.
            name = f"refused-{len(self._refused)}"
            self._refused[name] = error.response.text
            return name

    def state(self, run: str, step: Step) -> State:
        if run in self._refused:
            return "failed"
        flow_run = self._flow_run(run)
        has_ended = flow_run["state_type"] in _TERMINAL
        tasks = self._tasks(run, step)
        if not tasks:
            return _STATES[flow_run["state_type"]] if has_ended else "waiting"
        newest = tasks[-1]
        if newest["state_type"] == "CRASHED" and not has_ended:
            return "waiting"  # of the attempt before
        if newest["state_type"] == "CRASHED" or newest["state_type"] not in _TERMINAL:
            # A killed process has no time to say how its tasks ended.
            return _STATES[flow_run["state_type"]] if has_ended else _STATES[newest["state_type"]]
        return "skipped" if newest["state_name"] == "Skipped" else _STATES[newest["state_type"]]

    def tries(self, run: str, step: Step) -> int:
        if run in self._refused:
            return 0
        return sum(max(1, task["run_count"]) for task in self._tasks(run, step))

    def handed_on(self, run: str) -> Mapping[str, Any]:
        sweep_id = self.job_notes(run)[0]["job"]["run_id"]
        deadline = time.monotonic() + 30
        while True:
            for event in self.events("raysweep.sweep.completed"):
                if event["resource"]["prefect.resource.id"] == f"raysweep.sweep.{sweep_id}":
                    payload: dict[str, Any] = event["payload"]
                    return payload
            assert time.monotonic() < deadline, "no event says that it has ended"
            time.sleep(0.2)

    def message(self, run: str, step: Step) -> str:
        if run in self._refused:
            return self._refused[run]
        states = [str(task["state"]["message"]) for task in self._tasks(run, step)]
        return "\n".join([str(self._flow_run(run)["state"]), *states, *self._logs(run)])

    def shown(self, run: str) -> str:
        filters = {"flow_runs": {"id": {"any_": [run]}}}
        found: list[Any] = [self._flow_run(run), *self._logs(run), *self.job_notes(run)]
        found += self._patiently("POST", "/task_runs/filter", filters)
        found += self._patiently("POST", "/artifacts/filter", filters)
        found += self.events("raysweep.sweep.completed")
        found += [
            path.read_text(errors="replace")
            for path in self.servers.home.glob("storage/**/*")
            if path.is_file()
        ]
        found += [self.servers.log(name) for name in ("server", "worker")]
        return json.dumps(found)

    def kill_step(self, run: str) -> None:
        for pid in self.flow_processes(run):
            os.kill(pid, signal.SIGKILL)
        self.wait_for(run, "CRASHED")
        self._let_the_worker_see(run)
        self.servers.command("flow-run", "retry", run)

    kill_submission = kill_step

    def move(self, run: str, night: Night) -> str:
        # Another run of the deployment, with the first one's key.
        return self.begin(night, key=run)

    def restart_servers(self) -> None:
        self.servers.end("server")
        time.sleep(2)
        self.servers.start_server()

    def cancel(self, run: str) -> None:
        self._patiently("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})

    def again(self, run: str) -> None:
        self.wait_for(run, *_TERMINAL)
        self._let_the_worker_see(run)
        # What `prefect flow-run retry`, which `kill_step` uses, asks the server for.
        state = {"type": "SCHEDULED", "message": "Retried"}
        self._patiently("POST", f"/flow_runs/{run}/set_state", {"state": state, "force": True})

    def reach(self, address: str) -> None:
        from raysweep_prefect import RayCluster

        with _settings_of(self.servers):
            block = RayCluster.load(BLOCK, _sync=True)  # type: ignore[call-arg]
            assert isinstance(block, RayCluster)
            RayCluster(address=address, token=block.token, trust_env=False).save(BLOCK, overwrite=True)

    def _let_the_worker_see(self, run: str) -> None:
        """As a person would, wait some seconds: a worker knows a flow run's process by the flow run.

        One that is begun again before it has seen the end of the last one is lost to Prefect 3.7; and 3.9
        tells of the crash once more, which would end it.
        """
        deadline = time.monotonic() + 60
        while self.flow_processes(run):
            assert time.monotonic() < deadline, "its process does not end"
            time.sleep(0.2)
        time.sleep(5)

    # --- what Prefect's own tests need besides

    def flow_processes(self, run: str) -> list[int]:
        """The processes that run this flow run."""
        return processes_with("PREFECT__FLOW_RUN_ID", run)

    def wait_for(self, run: str, *states: str, timeout_s: float = 90) -> None:
        """Wait until the flow run is in one of these states."""
        deadline = time.monotonic() + timeout_s
        while (flow_run := self._flow_run(run))["state_type"] not in states:
            assert time.monotonic() < deadline, (flow_run["state"], self._logs(run))
            time.sleep(0.2)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of this name, the newest first."""
        answer = self._patiently(
            "POST", "/events/filter", {"filter": {"event": {"name": [name]}}, "limit": 50}
        )
        found: list[dict[str, Any]] = answer["events"]
        return found

    def artifacts(self, run: str) -> dict[str, dict[str, Any]]:
        """The artifacts of a run by what they are: `progress`, `leaderboard`, `report`, `links`."""
        rows = self._patiently("POST", "/artifacts/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {row["key"].rpartition("-")[2]: row for row in rows if row["key"]}

    def job_notes(self, run: str) -> list[dict[str, Any]]:
        """What is noted of its jobs for the hooks."""
        rows = self._patiently(
            "POST",
            f"/flow_runs/{run}/input/filter",
            {"prefix": "raysweep-job", "limit": 50, "exclude_keys": []},
        )
        return [json.loads(row["value"]) for row in rows]

    def _flow_run(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self._patiently("GET", f"/flow_runs/{run}")
        return found

    def _tasks(self, run: str, step: Step) -> list[dict[str, Any]]:
        """The task runs of a step, in order."""
        rows = self._patiently("POST", "/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return sorted(
            (row for row in rows if row["task_key"].startswith(f"{step}-")),
            key=lambda row: str(row["created"]),
        )

    def _logs(self, run: str) -> list[str]:
        filters = {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200}
        return [row["message"] for row in self._patiently("POST", "/logs/filter", filters)]

    def _patiently(self, method: str, path: str, json: Any = None) -> Any:
        return ask_patiently(self.servers, method, path, json)


def ask_patiently(servers: LocalPrefect, method: str, path: str, json: Any = None) -> Any:
    """As `ask`, through a restart of the server, and through SQLite that is busy: for a minute, at times."""
    deadline = time.monotonic() + 150
    while True:
        try:
            return servers.ask(method, path, json)
        except httpx.HTTPError as error:
            is_refused = isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500
            if is_refused or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def deploy(
    servers: LocalPrefect,
    flow: str,
    name: str,
    parameters: Mapping[str, Any],
    module: str = "raysweep_prefect.flows",
    **fields: Any,
) -> str:
    """A deployment of a flow of a module on the worker's pool; its id."""
    found = getattr(import_module(module), flow)
    flow_id = ask_patiently(servers, "POST", "/flows/", {"name": found.name})["id"]
    working_directory = {"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}
    made = ask_patiently(
        servers,
        "POST",
        "/deployments/",
        {
            "name": name,
            "flow_id": flow_id,
            "entrypoint": f"{module}.{flow}",
            "work_pool_name": servers.pool,
            "pull_steps": [working_directory],
            "parameters": dict(parameters),
            "parameter_openapi_schema": found.parameters.model_dump(),
            "enforce_parameter_schema": True,
            **fields,
        },
    )
    return str(made["id"])


def save_cluster(servers: LocalPrefect, head: Head, name: str = BLOCK) -> None:
    """The block by which flow runs, and their hooks, reach the head."""
    from raysweep_prefect import RayCluster

    with _settings_of(servers):
        RayCluster(address=head.address, token=head.token, trust_env=False).save(name, overwrite=True)


def _settings_of(servers: LocalPrefect) -> AbstractContextManager[Any]:
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    return temporary_settings({PREFECT_API_URL: servers.api, PREFECT_HOME: Path(servers.home)})
