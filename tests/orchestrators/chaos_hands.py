"""What the stress run does to each orchestrator beyond the scenarios: kill, restart, mark, clear, tend.

`tend` is what others do without being part of the plan: cron begins a loop again that has died, a person
retries a flow run that has crashed. Airflow needs nobody.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

import httpx
import yaml

from devtools.airflow.local import COMPONENTS, Component
from devtools.prefect.local import LocalPrefect
from devtools.prefect.serving import save_automations
from devtools.servers import LocalServersError
from tests.airflow.servers import Airflow, AirflowAnswerError
from tests.jobs.head import ROOT
from tests.orchestrators.airflow import AirflowOrchestrator
from tests.orchestrators.chaos_oracle import StepSeen
from tests.orchestrators.chaos_site import Behind, Site
from tests.orchestrators.loop import LoopOrchestrator, read
from tests.orchestrators.nights import ENDED, Night, Orchestrator, Step
from tests.orchestrators.prefect import PrefectOrchestrator, deploy, save_cluster

PATIENCE_S = 150.0
ENDED_STATES = ("success", "failed", "skipped", "upstream_failed", "removed")
ZOMBIE_S = 30.0
"""How long a flow run without a process counts as one that is about to get one."""
HEARTBEAT_S = 30
"""How often a flow run shows that it is alive: no more often than that, by Prefect."""
CRASH_S = 3 * HEARTBEAT_S + 5
"""How long none may be seen before the automation says that it has crashed."""
UNSEEN_S = CRASH_S + 45.0
"""How long a person waits for the automation."""


class Hands(Orchestrator, Protocol):
    """An orchestrator that can be made to suffer."""

    clear_resumes: bool
    """Whether a night that a person cancelled continues when it is cleared or retried."""

    def begin_child(self, night: Night) -> str:
        """As `begin`, by another flow."""

    def take_token(self, cluster: Behind, away_s: float) -> None:
        """A person gives the orchestrator the cluster's new token, at most `away_s` later."""

    def kill(self, run: str, step: Step) -> bool:
        """SIGKILL the process that runs this step, or waits for it; whether there was one."""

    def server(self, how: str, name: str, away_s: float) -> None:
        """`restart` or `kill` a server, and start it again after `away_s`.

        `orphan`: kill its first process only; what that has started lives on.
        """

    def act(self, what: str, run: str, step: Step) -> None:
        """`cancel`, `mark_failed`, `mark_success` or `clear`, as a person does it."""

    def befall(self, what: str, run: str, step: Step, site: Site, away_s: float) -> bool:
        """Let happen what can happen to this orchestrator only; False: there is nothing yet to hit."""

    def tend(self, run: str, *, is_wanted: bool) -> bool:
        """What somebody else does about a run that has died; whether there was anything to be done.

        Args:
            run: The run.
            is_wanted: Whether nobody has ended it.
        """

    def more_lies(self, run: str) -> list[str]:
        """Contradictions that only this orchestrator can have: about approvals."""

    def summary(self, run: str) -> str:
        """What else is to be said of a night; empty: nothing."""

    def given(self, run: str, step: Step) -> dict[str, Any] | None:
        """The brief that a step handed on; None where it cannot be seen."""

    def is_asked(self, run: str) -> bool:
        """Whether a person is asked for approval, and has not answered."""

    def answer(self, run: str, *, approved: bool) -> bool:
        """Answer as a person does; whether the answer was taken."""

    def clear_approval(self, run: str) -> None:
        """Clear the task that asks."""

    def approval(self, run: str) -> StepSeen:
        """The task that asks, and what it handed on."""


class WithoutParents:
    """What is only drawn for Prefect."""

    def begin_child(self, night: Night) -> str:
        raise NotImplementedError("nothing starts its nights")

    def more_lies(self, run: str) -> list[str]:
        return []

    def summary(self, run: str) -> str:
        return ""


class WithoutApprovals:
    """What is only drawn for Airflow."""

    def is_asked(self, run: str) -> bool:
        raise NotImplementedError("no person is asked")

    def answer(self, run: str, *, approved: bool) -> bool:
        raise NotImplementedError("no person is asked")

    def clear_approval(self, run: str) -> None:
        raise NotImplementedError("no person is asked")

    def approval(self, run: str) -> StepSeen:
        raise NotImplementedError("no person is asked")


class LoopHands(WithoutParents, WithoutApprovals, LoopOrchestrator):
    clear_resumes = False

    def take_token(self, cluster: Behind, away_s: float) -> None:
        raise NotImplementedError("its token stays")

    def kill(self, run: str, step: Step) -> bool:
        is_alive = self.processes[run].poll() is None
        self.processes[run].kill()
        self.processes[run].wait()
        return is_alive

    def server(self, how: str, name: str, away_s: float) -> None:
        raise NotImplementedError("a loop has no servers")

    def act(self, what: str, run: str, step: Step) -> None:
        if what == "cancel":
            self.cancel(run)
            return
        # Clear: a new process in the place of the old one, which leaves no word that anything is over.
        Path(run, "over").write_text("")
        self.processes[run].terminate()
        self.processes[run].wait()
        self.again(run)

    def befall(self, what: str, run: str, step: Step, site: Site, away_s: float) -> bool:
        raise NotImplementedError(what)

    def tend(self, run: str, *, is_wanted: bool) -> bool:
        steps: tuple[Step, ...] = ("sweep", "gate", "train")
        states = [self.state(run, step) for step in steps]
        has_ended = states[2] in ENDED or any(state in ("failed", "cancelled") for state in states)
        if self.processes[run].poll() is None or has_ended or not is_wanted:
            return False
        self.again(run)
        return True

    def given(self, run: str, step: Step) -> dict[str, Any] | None:
        return read(run, step).get("brief")


class PrefectHands(WithoutApprovals, PrefectOrchestrator):
    clear_resumes = False

    def __init__(self, servers: LocalPrefect) -> None:
        super().__init__(servers)
        self._seen_at: dict[str, float] = {}
        self._parent = deploy(servers, "parent", "parent", {}, module="tests.prefect.own_flows")
        save_automations(servers, _automations(servers.home))

    def begin_child(self, night: Night) -> str:
        runs = [self.parameters(night, None)]
        path = f"/deployments/{self._parent}/create_flow_run"
        asked = {"parameters": {"deployment": "nightly-sweep/night", "runs": runs}}
        parent = self._patiently("POST", path, asked)["id"]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            asked = {"flow_runs": {"parent_flow_run_id": {"any_": [parent]}}}
            for found in self._patiently("POST", "/flow_runs/filter", asked):
                return str(found["id"])
            assert time.monotonic() < deadline, "the parent starts no run"
            time.sleep(0.5)

    def take_token(self, cluster: Behind, away_s: float) -> None:
        save_cluster(self.servers, cluster)  # type: ignore[arg-type]

    def kill(self, run: str, step: Step) -> bool:
        pids = self.flow_processes(run)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def server(self, how: str, name: str, away_s: float) -> None:
        if how == "kill":
            self.servers.kill(name)
        else:
            self.servers.end(name, signal.SIGKILL if how == "orphan" else signal.SIGTERM)
        time.sleep(away_s)
        if name == "server":
            self.servers.start_server()
        else:
            self._start_worker()

    def _start_worker(self) -> None:
        """As what supervises a worker does: one that ends, as its server is away, is started again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.servers.start_worker()
                return
            except LocalServersError:
                self.servers.kill("worker")
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)

    def act(self, what: str, run: str, step: Step) -> None:
        if what == "cancel":
            self.cancel(run)
        elif what == "clear":
            self.again(run)
        else:
            kind = {"mark_failed": "FAILED", "mark_success": "COMPLETED"}[what]
            state = {"type": kind, "message": "marked by a person"}
            self._patiently("POST", f"/flow_runs/{run}/set_state", {"state": state, "force": True})

    def befall(self, what: str, run: str, step: Step, site: Site, away_s: float) -> bool:
        raise NotImplementedError(what)

    def tend(self, run: str, *, is_wanted: bool) -> bool:
        state = self._flow_run(run)["state_type"]
        limit_s = ZOMBIE_S if state == "PENDING" else UNSEEN_S
        if state not in ("PENDING", "RUNNING", "PAUSED") or self.flow_processes(run):
            self._seen_at[run] = time.monotonic()
        elif time.monotonic() - self._seen_at.setdefault(run, time.monotonic()) > limit_s:
            # A worker that ends takes its flow runs along and tells nobody. Those that run crash by the
            # automation on their heartbeats; a person sees those that never began, or had none.
            self._seen_at[run] = time.monotonic()
            crashed = {"type": "CRASHED", "message": "no process of it is left"}
            self._patiently("POST", f"/flow_runs/{run}/set_state", {"state": crashed, "force": True})
            state = "CRASHED"
        if not is_wanted or state != "CRASHED":
            return False
        self.again(run)
        return True

    def given(self, run: str, step: Step) -> dict[str, Any] | None:
        if step != "sweep":
            return None
        try:
            return dict(self.handed_on(run))
        except (AssertionError, IndexError):
            return None  # no event: the server was away when it was sent


def _automations(home: Path) -> Path:
    """Those of `prefect.yaml`, with less patience."""
    found = yaml.safe_load((ROOT / "prefect.yaml").read_text())["automations"]
    for automation in found:
        automation["trigger"]["within"] = CRASH_S
    (file := home / "automations.yaml").write_text(yaml.safe_dump({"automations": found}))
    return file


class PatientAirflow(Airflow):
    """Its client continues through a restart of the API server."""

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return super().call(method, path, body, **query)
            except (httpx.TransportError, AirflowAnswerError) as error:
                is_refused = isinstance(error, AirflowAnswerError) and ": 50" not in str(error)
                if is_refused or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


class AirflowHands(WithoutParents, AirflowOrchestrator):
    clear_resumes = True

    def kill(self, run: str, step: Step) -> bool:
        dag_id, _, run_id = run.partition(":")
        task = self.servers.task(dag_id, run_id, step)
        if task["state"] == "deferred":
            self.servers.kill("triggerer")
            self.servers.start_component("triggerer")
            return True
        pids = self.servers.task_processes(task["id"]) if task["state"] == "running" else []
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def server(self, how: str, name: str, away_s: float) -> None:
        component = cast(Component, name)
        assert component in COMPONENTS
        if how == "kill":
            self.servers.kill(component)
        else:
            self.servers.stop_component(component)
        time.sleep(away_s)
        self.servers.start_component(component)

    def act(self, what: str, run: str, step: Step) -> None:
        dag_id, _, run_id = run.partition(":")
        if what == "cancel":
            self.cancel(run)
        elif what == "clear":
            self.servers.clear(dag_id, run_id, "sweep", downstream=True)
        elif what == "expire_run":
            self._expire(dag_id, run_id)
        else:
            state = {"mark_failed": "failed", "mark_success": "success"}[what]
            self.servers.patch_state(dag_id, run_id, step, state)

    def befall(self, what: str, run: str, step: Step, site: Site, away_s: float) -> bool:
        dag_id, _, run_id = run.partition(":")
        if what == "drop_rows":
            return self._drop_rows(dag_id, run_id, step)
        assert what == "kill_worker"
        pids = self.servers.task_processes(self.servers.task(dag_id, run_id, step)["id"])
        for pid in pids:
            with suppress(OSError):
                os.kill(_parent(pid), signal.SIGKILL)
        return bool(pids)

    def take_token(self, cluster: Behind, away_s: float) -> None:
        def tell() -> None:
            time.sleep(min(away_s, 5.0))  # a submission asks again for ten seconds
            name = "raysweep_default"
            fields = {"connection_id": name, "conn_type": "raysweep", "password": cluster.token}
            self.servers.call("PATCH", f"/connections/{name}", fields, update_mask=["password"])

        threading.Thread(target=tell, daemon=True).start()

    def _drop_rows(self, dag_id: str, run_id: str, step: Step) -> bool:
        """As Airflow does after its retention, and with `clear_on_success`."""
        with closing(sqlite3.connect(self.servers.home / "airflow.db", timeout=30)) as database, database:
            where = "dag_id = ? AND run_id = ? AND task_id = ?"
            gone = database.execute(f"DELETE FROM task_state_store WHERE {where}", (dag_id, run_id, step))
            return gone.rowcount > 0

    def _expire(self, dag_id: str, run_id: str) -> None:
        """As the scheduler does at `dagrun_timeout`; the triggerer is away, and back when that is done."""
        self.servers.kill("triggerer")
        with closing(sqlite3.connect(self.servers.home / "airflow.db", timeout=30)) as database, database:
            now, where = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"), "dag_id = ? AND run_id = ?"
            database.execute(
                f"UPDATE dag_run SET state = 'failed', end_date = ? WHERE {where}", (now, dag_id, run_id)
            )
            database.execute(
                "UPDATE task_instance SET state = 'skipped', trigger_id = NULL, updated_at = ? "
                f"WHERE {where} AND (state IS NULL OR state NOT IN {ENDED_STATES})",
                (now, dag_id, run_id),
            )
        self.servers.start_component("triggerer")

    def tend(self, run: str, *, is_wanted: bool) -> bool:
        return False

    def is_asked(self, run: str) -> bool:
        if self.servers.state(*_split(run), "approve") != "awaiting_input":
            return False
        try:
            form = self.servers.call("GET", self._form(run))
        except AirflowAnswerError:
            return False  # the task is about to ask anew
        return not form["response_received"]

    def answer(self, run: str, *, approved: bool) -> bool:
        body = {"chosen_options": ["Approve" if approved else "Reject"], "params_input": {"note": ""}}
        try:
            self.servers.call("PATCH", self._form(run), body)
        except AirflowAnswerError:
            return False  # it has an answer, or asks no more
        return True

    def clear_approval(self, run: str) -> None:
        self.servers.clear(*_split(run), "approve")

    def approval(self, run: str) -> StepSeen:
        handed = self.servers.xcom(*_split(run), "approve")
        given = {"promoted": handed.get("promoted")} if handed is not None else None
        return StepSeen(state=self.state(run, "approve"), handed_on=given)

    @staticmethod
    def _form(run: str) -> str:
        dag_id, run_id = _split(run)
        return f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/approve/-1/hitlDetails"

    def given(self, run: str, step: Step) -> dict[str, Any] | None:
        dag_id, _, run_id = run.partition(":")
        found = self.servers.xcom(dag_id, run_id, step)
        return dict(found) if found is not None else None


def _split(run: str) -> tuple[str, str]:
    dag_id, _, run_id = run.partition(":")
    return dag_id, run_id


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
