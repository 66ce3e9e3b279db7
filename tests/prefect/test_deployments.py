"""`prefect.yaml`: what it says, and a night of it by schedule, by hand and by event on real servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.prefect.local import LocalPrefect
from raysweep_prefect import flows
from tests.engine.conftest import wait_for
from tests.jobs.head import ROOT, Head
from tests.orchestrators.prefect import PrefectOrchestrator, ask_patiently

FILE = ROOT / "prefect.yaml"
NIGHTLY = "nightly-sweep/flights"


def deployments() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in yaml.safe_load(FILE.read_text())["deployments"]}


@pytest.mark.parametrize("name", ["flights", "on-sweep"])
def test_parameters_are_those_of_the_flow(name: str) -> None:
    deployment = deployments()[name]
    module, _, flow_name = deployment["entrypoint"].rpartition(".")
    assert module == "raysweep_prefect.flows"
    flow = getattr(flows, flow_name)
    known = flow.parameters.model_dump()["properties"]
    given = set(deployment["parameters"])
    for trigger in deployment.get("triggers", ()):
        given |= set(trigger["parameters"])
    assert given <= set(known)
    assert set(flow.parameters.model_dump()["required"]) <= given
    for parameter in ("spec", "train_spec"):
        if parameter in deployment["parameters"]:
            assert (ROOT / deployment["parameters"][parameter]).is_file()


def test_the_night_runs_at_one_hour_and_never_twice_at_once() -> None:
    night = deployments()["flights"]
    (schedule,) = night["schedules"]
    assert (schedule["cron"], schedule["timezone"]) == ("0 22 * * *", "Europe/Berlin")
    assert night["concurrency_limit"] == {
        "limit": 1,
        "collision_strategy": "CANCEL_NEW",
        "grace_period_seconds": 120,
    }


def test_runs_that_show_no_sign_of_life_crash() -> None:
    """Two heartbeats may be lost; a run that has ended needs none."""
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.settings import get_current_settings

    (given,) = yaml.safe_load(FILE.read_text())["automations"]
    automation = AutomationCore.model_validate(given)
    trigger, every_s = automation.trigger, get_current_settings().flows.heartbeat_frequency
    assert isinstance(trigger, EventTrigger)
    assert (trigger.posture, every_s) == (Posture.Proactive, 180)
    assert trigger.within.total_seconds() >= 3 * 180
    ends = {"Completed", "Failed", "Cancelled", "Crashed"}
    assert trigger.expect == {f"prefect.flow-run.{end}" for end in (*ends, "heartbeat")}


# --- on real servers


@pytest.fixture
def deployed(
    prefect_servers: LocalPrefect, head: Head, tmp_path: Path
) -> Iterator[Callable[[str], dict[str, Any]]]:
    """The file as it is, but for a sweep of seconds, every minute; gives a deployment by its full name."""
    document = yaml.safe_load(FILE.read_text())
    night, training = document["deployments"]
    night["schedules"][0]["cron"] = "* * * * *"
    night["parameters"] |= {"spec": "examples/quick/sweep.yaml", "train_spec": "examples/quick/train.yaml"}
    del night["parameters"]["gate_spec"]
    for each in (night, training):
        each["parameters"]["storage_path"] = str(tmp_path / "sweeps")
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump(document).replace("{{ $PWD }}", str(ROOT)))
    prefect_servers.command("deploy", "--all", "--prefect-file", str(file), timeout_s=300)

    def get(name: str) -> dict[str, Any]:
        found: dict[str, Any] = ask_patiently(prefect_servers, "GET", f"/deployments/name/{name}")
        return found

    yield get
    for name in (NIGHTLY, "train-best/on-sweep"):
        ask_patiently(prefect_servers, "DELETE", f"/deployments/{get(name)['id']}")


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_a_night_by_schedule_by_hand_and_by_event(
    deployed: Callable[[str], dict[str, Any]],
    prefect_servers: LocalPrefect,
    orchestrator: PrefectOrchestrator,
) -> None:
    night = deployed(NIGHTLY)
    assert night["concurrency_limit"] is None or night["concurrency_limit"] == 1
    assert night["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    assert night["global_concurrency_limit"]["limit"] == 1
    assert night["schedules"][0]["schedule"]["timezone"] == "Europe/Berlin"

    scheduled = wait_for_run(prefect_servers, night["id"], lambda run: run["auto_scheduled"])
    ask_patiently(prefect_servers, "PATCH", f"/deployments/{night['id']}", {"paused": True})
    assert scheduled["state_type"] == "COMPLETED", orchestrator.message(scheduled["id"], "sweep")
    shown = orchestrator.artifacts(scheduled["id"])
    assert set(shown) == {"progress", "leaderboard", "report", "links"}
    assert shown["progress"]["data"] == 100.0
    best = orchestrator.handed_on(scheduled["id"])["best"]
    rows = json.loads(shown["leaderboard"]["data"])
    assert rows[0]["rate"] == pytest.approx(best["config"]["rate"])
    assert f"trial {best['trial_id']}" in shown["report"]["data"]
    assert "/#/jobs/quick-" in shown["links"]["data"]

    def assets() -> set[str]:
        made = orchestrator.events("prefect.asset.materialization.succeeded")
        return {event["resource"]["prefect.resource.id"] for event in made}

    # The server takes events in its own time.
    wait_for(lambda: assets() >= {"raysweep://quick/best-config", "raysweep://quick-full/model"}, 60)

    # By event: the automation trains the same best, with its types intact.
    trained = wait_for_run(prefect_servers, deployed("train-best/on-sweep")["id"], lambda run: True)
    assert trained["state_type"] == "COMPLETED", orchestrator.message(trained["id"], "train")
    finished = trained["parameters"]["finished"]
    assert finished["best"]["config"] == best["config"]
    assert isinstance(finished["best"]["config"]["rate"], float)
    assert isinstance(finished["counts"]["completed"], int)

    output = prefect_servers.command(
        "deployment", "run", NIGHTLY, "--param", "key=by-hand", "--param", "train_spec=null"
    )
    assert "Created flow run" in output
    by_hand = wait_for_run(prefect_servers, night["id"], lambda run: not run["auto_scheduled"])
    assert by_hand["state_type"] == "COMPLETED", orchestrator.message(by_hand["id"], "sweep")
    assert by_hand["name"] == "nightly-sweep by-hand"


def wait_for_run(
    servers: LocalPrefect, deployment_id: str, is_meant: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The first run that is meant and has ended."""
    deadline = time.monotonic() + 360
    filters = {"deployments": {"id": {"any_": [deployment_id]}}, "sort": "EXPECTED_START_TIME_ASC"}
    while True:
        for run in ask_patiently(servers, "POST", "/flow_runs/filter", filters):
            found: dict[str, Any] = run
            if is_meant(found) and run["state_type"] in ("COMPLETED", "FAILED", "CRASHED"):
                return found
        assert time.monotonic() < deadline, servers.log("worker")[-3000:]
        time.sleep(0.5)
