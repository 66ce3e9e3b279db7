"""A flow run that a person cancels ends as Cancelled, by its worker or by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.states import Cancelled, Cancelling, Failed, Running, State

from devtools.prefect.local import LocalPrefect
from raysweep_prefect import cancelling
from raysweep_prefect.cancelling import RunCancelledError, leave_cancelled
from raysweep_prefect.identity import Asker
from tests.engine.conftest import wait_for
from tests.jobs.head import ROOT, free_ports
from tests.orchestrators.prefect import QUICK, ask_patiently


class Server:
    """One flow run. `script` has what happens before each look at it."""

    def __init__(self) -> None:
        self.run = SimpleNamespace(id=uuid4(), run_count=1, infrastructure_pid="1", work_pool_name=None)
        self.run.state = Cancelling()
        self.script: list[Any] = []
        self.is_away = False

    @contextmanager
    def client(self, **_: Any) -> Iterator[Any]:
        if self.script:
            self.script.pop(0)()
        if self.is_away:
            raise httpx.ConnectError("refused")
        yield self

    def read_flow_run(self, _: UUID) -> Any:
        return self.run

    def set_flow_run_state(self, _: UUID, state: State[Any], *, force: bool) -> None:
        assert force
        self.run.state = state

    def asker(self, **others: Any) -> Asker:
        known = {"owner_id": self.run.id, "flow_run_id": self.run.id, "attempt": 1, "task_run_id": None}
        return Asker(**known | others)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Prefect's client is replaced: only so can a worker be late at will."""
    found = Server()
    monkeypatch.setattr(cancelling, "get_client", found.client)
    monkeypatch.setattr(cancelling, "PAUSE_S", 0.01)
    monkeypatch.setattr(cancelling, "WORKER_S", 0.2)
    return found


def test_the_worker_has_time_to_end_it(server: Server) -> None:
    server.script = [*[lambda: None] * 3, lambda: setattr(server.run, "state", Cancelled(message="worker"))]
    with pytest.raises(RunCancelledError):
        leave_cancelled(server.asker(), "sweep 's' cancelled")
    assert server.run.state.message == "worker"


def test_where_the_worker_does_not_it_ends_itself(server: Server) -> None:
    began = time.monotonic()
    with pytest.raises(RunCancelledError, match="sweep 's' cancelled"):
        leave_cancelled(server.asker(), "sweep 's' cancelled")
    assert time.monotonic() - began >= 0.2
    assert server.run.state.is_cancelled()
    assert server.run.state.message == "sweep 's' cancelled"


def test_a_flow_without_a_worker_waits_for_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "WORKER_S", 600.0)
    server.run.infrastructure_pid = None
    with pytest.raises(RunCancelledError):
        leave_cancelled(server.asker(), "sweep 's' cancelled")
    assert server.run.state.is_cancelled()


@pytest.mark.parametrize("state", [Running(), Failed()], ids=["running", "failed"])
def test_a_sweep_that_somebody_cancelled_fails_its_run(state: State[Any], server: Server) -> None:
    server.run.state = state
    leave_cancelled(server.asker(), "sweep 's' cancelled")
    assert server.run.state is state


def test_a_later_attempt_a_subflow_and_a_run_outside_of_a_flow_are_left_alone(server: Server) -> None:
    leave_cancelled(None, "")
    leave_cancelled(server.asker(flow_run_id=uuid4()), "")
    leave_cancelled(server.asker(attempt=2), "")
    assert server.run.state.is_cancelling()


def test_a_server_that_is_away_is_asked_again_and_not_for_ever(server: Server) -> None:
    server.is_away = True
    leave_cancelled(server.asker(), "")
    server.script = [*[lambda: None] * 3, lambda: setattr(server, "is_away", False)]
    with pytest.raises(RunCancelledError):
        leave_cancelled(server.asker(), "")


FLOW = """
import sys
from prefect import flow
from raysweep_prefect.tasks import sweep

@flow(name="own")
def own():
    sweep({"name": "s", "trainable": "tests.prefect.trainables:slow_steps", "metric": "loss", "mode": "min",
        "num_samples": 4, "param_space": {"x": {"uniform": [1, 2]}, "steps": 600, "log": sys.argv[1]}},
        storage_path=sys.argv[2])

own()
"""


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_flow_that_no_worker_runs_is_cancelled_on_a_real_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    (port,) = free_ports(1)
    roots = os.pathsep.join(str(ROOT / name) for name in (".", "engine", "flows"))
    with LocalPrefect(tmp_path / "home", port=port, environment=QUICK) as servers:
        environment = servers.environment | {"PYTHONPATH": roots}
        command = [sys.executable, "-c", FLOW, str(log), str(tmp_path / "out")]
        with subprocess.Popen(command, env=environment) as process:
            wait_for(lambda: log.read_text().splitlines(), 120)
            found = ask_patiently(servers, "POST", "/flow_runs/filter", {"limit": 9})
            (run,) = [each["id"] for each in found]
            ask_patiently(servers, "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
            process.wait(timeout=120)
        now = ask_patiently(servers, "GET", f"/flow_runs/{run}")
    assert (now["state_type"], now["state"]["message"][:7]) == ("CANCELLED", "sweep '")
