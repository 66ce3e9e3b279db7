"""Approval, registry, end of the night, rollback and events on a real Prefect server, without Ray."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.prefect.local import LocalPrefect
from raysweep.cli import main
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.storage.objects.opening import open_store
from tests.jobs.head import free_ports
from tests.orchestrators.prefect import QUICK, PrefectOrchestrator, ask_patiently, deploy
from tests.prefect.desk import Desk, store_training, wait_until
from tests.prefect.flowruns import create

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]
HOURS = {"timeout": 4 * 3600.0}


@pytest.fixture(scope="module")
def orchestrator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectOrchestrator]:
    (port,) = free_ports(1)
    home = tmp_path_factory.mktemp("prefect")
    with LocalPrefect(home, port=port, environment=QUICK) as servers:
        yield PrefectOrchestrator(servers)


@pytest.fixture
def desk(orchestrator: PrefectOrchestrator, tmp_path: Path) -> Desk:
    return Desk(orchestrator, tmp_path)


def approve(desk: Desk, champion: str, *more: str) -> int:
    """`raysweep approve`; its exit code."""
    return main(["approve", f"{champion}@latest", "--by", "bob", "--storage", str(desk.storage), *more])


def related(event: dict[str, Any]) -> dict[str, str]:
    return {each["prefect.resource.role"]: each["prefect.resource.id"] for each in event["related"]}


@pytest.mark.slow
def test_approved_rejected_and_silent_nights(desk: Desk) -> None:
    """Three at a time, each with champions of its own."""
    name = desk.name
    yes, no, silent = (f"{each}-{name}" for each in ("yes", "no", "silent"))
    given = {
        yes: desk.night("n1", champion=yes, approval=HOURS),
        no: desk.night("n2", champion=no, approval=HOURS),
        silent: desk.night("n3", champion=silent, approval={"timeout": 60.0, "on_silence": "promote"}),
    }
    runs = {each: desk.begin(parameters) for each, parameters in given.items()}
    form = desk.waits(runs[yes])
    assert "passed the gate, waits for approval" in form
    assert desk.answer(runs[yes], approved=True, note="looked  at it") == "ACCEPT"
    desk.waits(runs[no])
    assert desk.answer(runs[no], approved=False) == "ACCEPT"

    tasks = desk.end(runs[yes])
    assert tasks["approval"][0] == "Approved"
    assert "approved by ann" in tasks["approval"][1]
    assert tasks["approval"][1].endswith(": looked at it")
    assert desk.truth("n1", yes) == ("n1", [("ann", True)], ["n1"])
    tasks = desk.end(runs[no])
    assert tasks["approval"][0] == "Rejected"
    assert desk.truth("n2", no) == ("", [("ann", False)], [])
    tasks = desk.end(runs[silent])
    # On a slow machine the time for a decision is over before the run begins: then it does not wait.
    asked = "Approved" if desk.forms(runs[silent]) else ""
    assert tasks.get("approval", ("", ""))[0] == asked
    assert desk.truth("n3", silent) == ("n3", [("silence", True)], ["n3"])

    def said(champion: str) -> list[str]:
        whats = ("proposed", "approved", "promoted", "rejected")
        return [what for what in whats for _ in desk.events(what, champion)]

    wait_until(lambda: said(yes) == ["proposed", "approved", "promoted"])
    wait_until(lambda: said(no) == ["proposed", "rejected"])
    (event,) = desk.events("promoted", yes)
    assert event["payload"]["gate"]["approval"]["decision"]["by"] == "ann"
    roles = related(event)
    assert roles["sweep"] == f"raysweep.sweep.{event['payload']['sweep_id']}"
    assert roles["flow-run"] == f"prefect.flow-run.{runs[yes]}"
    made = desk.prefect.events("prefect.asset.materialization.succeeded")
    assert f"raysweep://{yes}/champion" in {each["resource"]["prefect.resource.id"] for each in made}

    # Another flow run of the same night asks nothing, and nothing is told or registered twice.
    again = desk.begin(given[yes])
    assert "approval" not in desk.end(again)
    assert desk.truth("n1", yes) == ("n1", [("ann", True)], ["n1"])
    time.sleep(3)
    assert said(yes) == ["proposed", "approved", "promoted"]


@pytest.mark.slow
def test_what_is_approved_twice_is_approved_once(desk: Desk) -> None:
    name = desk.name
    run = desk.begin(desk.night("n1", champion=name, approval=HOURS))
    desk.waits(run)
    assert approve(desk, name) == 0
    desk.answer(run, approved=False)  # it may have seen the decision already, and be over
    assert approve(desk, name, "--reject") == 1
    tasks = desk.end(run)
    assert tasks["approval"][0] == "Approved"
    assert desk.truth("n1", name) == ("n1", [("bob", True)], ["n1"])


@pytest.mark.slow
def test_a_run_that_dies_while_it_waits_asks_again_when_it_is_retried(desk: Desk) -> None:
    name, prefect = desk.name, desk.prefect
    run = desk.begin(desk.night("n1", champion=name, approval=HOURS))
    desk.waits(run)
    prefect.kill_step(run)  # and `prefect flow-run retry`
    desk.waits(run)
    assert desk.answer(run, approved=True) == "ACCEPT"
    assert desk.end(run)["approval"][0] == "Approved"
    assert desk.truth("n1", name) == ("n1", [("ann", True)], ["n1"])
    wait_until(lambda: desk.events("promoted", name))
    assert [len(desk.events(what, name)) for what in ("proposed", "approved", "promoted")] == [1, 1, 1]


@pytest.mark.slow
def test_an_answer_that_a_dead_run_did_not_read_counts_when_it_is_retried(desk: Desk) -> None:
    name, prefect = desk.name, desk.prefect
    run = desk.begin(desk.night("n1", champion=name, approval=HOURS))
    desk.waits(run)
    for pid in prefect.flow_processes(run):
        os.kill(pid, signal.SIGSTOP)
    assert desk.answer(run, approved=False, note="too slow") == "ACCEPT"
    assert desk.truth("n1", name) == ("", [], [])
    prefect.kill_step(run)
    tasks = desk.end(run)
    assert tasks["approval"][0] == "Rejected"
    assert desk.truth("n1", name) == ("", [("ann", False)], [])
    assert sum(key.endswith("-schema") for key in desk.forms(run)) == 1, "it was not asked again"


@pytest.mark.slow
def test_decided_while_the_server_is_away_and_after(desk: Desk) -> None:
    """One is decided on the command line while the server is away, one by its form once it is back."""
    servers = desk.prefect.servers
    away, later = (f"{each}-{desk.name}" for each in ("away", "later"))
    runs = {each: desk.begin(desk.night(each, champion=each, approval=HOURS)) for each in (away, later)}
    for run in runs.values():
        desk.waits(run)
    servers.end("server")
    assert approve(desk, away) == 0
    time.sleep(12)  # both have looked, and found no server
    servers.start_server()
    assert desk.end(runs[away])["approval"][0] == "Approved"
    assert desk.answer(runs[later], approved=True) == "ACCEPT"
    assert desk.end(runs[later])["approval"][0] == "Approved"
    assert desk.truth(away, away) == (away, [("bob", True)], [away])
    assert desk.truth(later, later) == (later, [("ann", True)], [later])


def test_a_run_that_is_set_to_cancelled_while_it_waits_decides_nothing(desk: Desk) -> None:
    """Prefect takes Cancelled from a person, and refuses Cancelling while a run is paused."""
    name = desk.name
    given = desk.night("n1", champion=name, approval=HOURS)
    run = desk.begin(given)
    desk.waits(run)
    told = ask_patiently(
        desk.prefect.servers, "POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}}
    )
    assert told["status"] == "ACCEPT"
    wait_until(lambda: not desk.prefect.flow_processes(run))
    desk.prefect.wait_for(run, "CANCELLED", timeout_s=1)
    assert desk.truth("n1", name) == ("", [], [])
    assert approve(desk, name) == 0
    assert "approval" not in desk.end(desk.begin(given))
    assert desk.truth("n1", name) == ("n1", [("bob", True)], ["n1"])


@pytest.mark.slow
def test_a_training_that_would_end_too_late_is_skipped_and_a_rollback_is_told_once(desk: Desk) -> None:
    name, servers = desk.name, desk.prefect.servers
    first = desk.begin(desk.night("n1", 2.0, champion=name))
    desk.end(first)
    # An earlier training took a day: the next one cannot end tonight.
    training = store_training(desk.storage, "before", 86_400.0)
    ends = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 3600))
    second = desk.begin(desk.night("n2", champion=name, train_spec=training, deadline=ends))
    tasks = desk.end(second)
    assert tasks["train"][0] == "Skipped"
    assert tasks["train"][1].startswith("training not begun: the one before took 24:00:00, and the night")
    assert tasks["register"][0] == "Completed"
    # With a training in its pipeline, a champion is registered with that model; there is none.
    assert desk.truth("n2", name) == ("n2", [], [])

    rollback = deploy(servers, "rollback_champion", "any", {})
    for _ in range(2):
        run = create(servers, rollback, {"name": name, "storage_path": str(desk.storage), "why": "slow"})
        desk.end(run)
    champion = read_champion(open_store(desk.storage), Line(name=name, metric="loss", mode="min")).champion
    assert champion is not None
    assert champion.key == "n1"
    (event,) = wait_until(lambda: desk.events("rolled_back", name))
    assert event["payload"]["why"] == "slow"
    assert related(event)["sweep"] == f"raysweep.sweep.{champion.sweep_id}"
    time.sleep(3)
    assert len(desk.events("rolled_back", name)) == 1
