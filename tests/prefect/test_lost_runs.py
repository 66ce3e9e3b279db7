"""Runs that another flow started, runs that lose their worker, and runs that lose everything."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devtools.prefect.serving import save_automations
from raysweep.outcome import SweepOutcome
from tests.jobs.head import ROOT, Head
from tests.orchestrators.nights import STOP_S, Nights
from tests.orchestrators.prefect import PrefectOrchestrator, ask_patiently, deploy
from tests.prefect.flowruns import create, spec

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(900)]
OWN = "tests.prefect.own_flows"
HEARTBEAT_S = 30
"""The least that Prefect takes."""


@pytest.fixture
def nights(orchestrator: PrefectOrchestrator, head: Head, log: Path, tmp_path: Path) -> Nights:
    return Nights(orchestrator, head, log, tmp_path / "sweeps")


def statuses(tmp_path: Path) -> list[str]:
    found = (tmp_path / "sweeps").glob("night-*/outcome.json")
    return sorted(SweepOutcome.from_json(path.read_bytes()).status for path in found)


@pytest.mark.slow
def test_a_run_of_a_deployment_that_a_flow_started_owns_its_sweep(
    nights: Nights, orchestrator: PrefectOrchestrator, log: Path, tmp_path: Path
) -> None:
    """Two of one deployment from one flow are two sweeps; who cancels one ends its sweep, and no other's."""
    servers = orchestrator.servers
    deploy(servers, "child", "child", {}, module=OWN)
    deployment = deploy(servers, "parent", "parent", {}, module=OWN)
    runs = [{"spec": spec(log, tmp_path, num_samples=count)} for count in (500, 8)]
    parent = create(servers, deployment, {"deployment": "own-child/child", "runs": runs})

    def children() -> dict[int, str]:
        asked = {"flow_runs": {"parent_flow_run_id": {"any_": [parent]}}}
        found = ask_patiently(servers, "POST", "/flow_runs/filter", asked)
        return {each["parameters"]["spec"]["num_samples"]: each["id"] for each in found}

    nights.until(lambda: len(children()) == 2, 90)
    nights.until(lambda: len(list((tmp_path / "sweeps").glob("night-*/sweep.json"))) == 2, 120)
    nights.until(lambda: nights.noted("end"), 60)
    long, short = children()[500], children()[8]
    assert [len(orchestrator.job_notes(run)) for run in (long, short, parent)] == [1, 1, 0]
    orchestrator.cancel(long)
    nights.until(lambda: "cancelled" in statuses(tmp_path), STOP_S)
    orchestrator.wait_for(long, "CANCELLED")
    orchestrator.wait_for(short, "COMPLETED", timeout_s=120)
    assert statuses(tmp_path) == ["cancelled", "completed"]
    orchestrator.wait_for(parent, "COMPLETED")


@pytest.mark.slow
def test_a_flow_that_lost_its_worker_goes_on_and_completes(
    nights: Nights, orchestrator: PrefectOrchestrator, log: Path, tmp_path: Path
) -> None:
    """Only the worker is killed: the flow logs every second, and nothing reads what it prints."""
    servers = orchestrator.servers
    deployment = deploy(servers, "child", "child", {}, module=OWN)
    run = create(servers, deployment, {"spec": spec(log, tmp_path, num_samples=30)})
    nights.until(lambda: len(nights.noted("end")) >= 2, 120)
    servers.end("worker", signal.SIGKILL)
    try:
        assert orchestrator.flow_processes(run)
        orchestrator.wait_for(run, "COMPLETED", "CRASHED", "FAILED", timeout_s=120)
        assert orchestrator._flow_run(run)["state_type"] == "COMPLETED", orchestrator.message(run, "sweep")
    finally:
        servers.start_worker()
    assert statuses(tmp_path) == ["completed"]
    assert len(nights.jobs()) == 1


@pytest.fixture
def watched(orchestrator: PrefectOrchestrator, tmp_path: Path) -> Iterator[None]:
    """The automation of `prefect.yaml`, with less patience, and flow runs with more heartbeats."""
    servers = orchestrator.servers
    document = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    (automation,) = document["automations"]
    automation["trigger"]["within"] = 2 * HEARTBEAT_S + 15
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump({"automations": [automation]}))
    save_automations(servers, file)
    servers.end("worker")
    servers._extra["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] = str(HEARTBEAT_S)
    servers.start_worker()
    yield
    del servers._extra["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]
    for known in servers.ask("POST", "/automations/filter", {}):
        if known["name"] == automation["name"]:
            servers.ask("DELETE", f"/automations/{known['id']}")


@pytest.mark.slow
@pytest.mark.usefixtures("watched")
def test_a_run_that_lost_worker_and_process_is_crashed_and_can_be_retried(
    nights: Nights, orchestrator: PrefectOrchestrator
) -> None:
    run = nights.begin(num_samples=150, pause=1.0)
    nights.until(lambda: len(nights.noted("end")) >= 2)
    orchestrator.servers.kill("worker")
    for pid in orchestrator.flow_processes(run):
        os.kill(pid, signal.SIGKILL)
    assert orchestrator.state(run, "sweep") == "running"
    orchestrator.wait_for(run, "CRASHED", timeout_s=4 * HEARTBEAT_S)
    assert "No heartbeat" in orchestrator._flow_run(run)["state"]["message"]
    orchestrator.servers.start_worker()
    orchestrator.servers.command("flow-run", "retry", run)
    orchestrator.wait_for(run, "RUNNING")
    nights.ends(run, "sweep", "success")
    assert nights.outcome().counts == {"completed": 150}
    assert len(nights.jobs()) == 1
