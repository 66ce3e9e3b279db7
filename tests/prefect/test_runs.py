"""What the scenarios do not cover: pages, blocks, subflows, people who set states, leases, a lost worker."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from devtools.prefect.local import LocalPrefect
from tests.engine.conftest import wait_for
from tests.jobs.head import Head
from tests.orchestrators.nights import HERE, STOP_S, Nights
from tests.orchestrators.prefect import BLOCK, PrefectOrchestrator, ask_patiently, deploy
from tests.prefect.flowruns import create, spec

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture
def nights(orchestrator: PrefectOrchestrator, head: Head, log: Path, tmp_path: Path) -> Nights:
    return Nights(orchestrator, head, log, tmp_path / "sweeps")


@pytest.mark.slow
def test_the_page_of_a_run_shows_how_the_sweep_stands(
    nights: Nights, orchestrator: PrefectOrchestrator, page: Any, tmp_path: Path
) -> None:
    run = nights.begin(num_samples=500, pause=0.5)
    nights.until(lambda: len(nights.noted("end")) >= 3)

    def shown() -> dict[str, Any] | None:
        artifacts = orchestrator.artifacts(run)
        is_whole = {"progress", "leaderboard", "report"} <= set(artifacts) and artifacts["progress"][
            "data"
        ] > 0
        return artifacts["progress"] if is_whole else None

    nights.until(shown, 60)
    before = shown()
    assert before is not None
    page.goto(f"{orchestrator.servers.address}/runs/flow-run/{run}", wait_until="networkidle")
    page.get_by_text("Artifacts", exact=True).first.click()
    try:
        page.get_by_text("of 500 trials ended").first.wait_for(timeout=90_000)
        page.get_by_text("night-report").first.wait_for(timeout=90_000)
    finally:
        picture = os.environ.get("RAYSWEEP_SCREENSHOT") or tmp_path / "run.png"
        page.screenshot(path=picture, full_page=True)
    assert 0 < before["data"] < 50
    # In place: one artifact, newer data.
    nights.until(lambda: orchestrator.artifacts(run)["progress"]["data"] > before["data"], 30)
    assert orchestrator.artifacts(run)["progress"]["id"] == before["id"]
    sweep_id = nights.folder().sweep_id
    (started,) = events_of(orchestrator, "started", sweep_id)
    assert started["payload"]["job_id"] == f"{sweep_id}.1"
    assert started["resource"]["raysweep.name"] == "night"
    nights.until(lambda: events_of(orchestrator, "new_best", sweep_id), 30)
    better = events_of(orchestrator, "new_best", sweep_id)
    scores = [each["payload"]["best"]["score"] for each in better]
    assert scores == sorted(set(scores)), "the newest first, each better than the one before"
    # Set to Failed by hand: nothing more is asked of that person, the sweep ends.
    ask_patiently(
        orchestrator.servers,
        "POST",
        f"/flow_runs/{run}/set_state",
        {"state": {"type": "FAILED"}, "force": True},
    )
    nights.cluster.wait_until_clean(STOP_S)
    nights.until(lambda: nights.folder().read_outcome() is not None, 10)
    assert nights.outcome().status == "cancelled"
    assert "was set to Failed" in nights.outcome().why
    nights.until(lambda: events_of(orchestrator, "cancelled", sweep_id), 30)
    assert not events_of(orchestrator, "completed", sweep_id)


@pytest.mark.slow
def test_a_failed_sweep_is_an_event_with_its_error(nights: Nights, orchestrator: PrefectOrchestrator) -> None:
    run = nights.begin(num_samples=30, trainable=f"{HERE}:raising")
    nights.ends(run, "sweep", "failed")
    sweep_id = nights.folder().sweep_id
    nights.until(lambda: events_of(orchestrator, "failed", sweep_id), 30)
    (failed,) = events_of(orchestrator, "failed", sweep_id)
    assert "the features are missing" in str(failed["payload"]["error"])


def test_the_form_of_the_deployment_shows_the_parameters(
    nights: Nights, orchestrator: PrefectOrchestrator, page: Any, tmp_path: Path
) -> None:
    found = ask_patiently(orchestrator.servers, "GET", "/deployments/name/nightly-sweep/night")
    page.goto(
        f"{orchestrator.servers.address}/deployments/deployment/{found['id']}/run", wait_until="networkidle"
    )
    for text in (
        "train_spec",
        "accept_partial",
        "Whether a search that a deadline or a budget cut short counts",
    ):
        page.get_by_text(text).first.wait_for(timeout=90_000)
    page.screenshot(path=os.environ.get("RAYSWEEP_SCREENSHOT_FORM") or tmp_path / "form.png", full_page=True)


@pytest.mark.slow
def test_a_sweep_that_nobody_waits_for_ends_by_its_lease(
    nights: Nights, orchestrator: PrefectOrchestrator, log: Path, tmp_path: Path
) -> None:
    deployment = deploy(orchestrator.servers, "nightly_sweep", "leased", {"cluster": BLOCK})
    parameters = {"spec": spec(log, tmp_path, num_samples=120), "job": {"lease_ttl_s": 10}}
    run = create(orchestrator.servers, deployment, parameters)
    nights.until(lambda: nights.noted("end"))
    for pid in orchestrator.flow_processes(run):
        os.kill(pid, signal.SIGKILL)
    orchestrator.wait_for(run, "CRASHED")
    nights.until(lambda: "its sweeps continue" in orchestrator.message(run, "sweep"), 30)
    nights.cluster.wait_until_clean(60)
    assert nights.folder().read_outcome() is None
    orchestrator.again(run)
    nights.ends(run, "sweep", "success")
    assert nights.outcome().counts == {"completed": 120}
    assert not set(nights.started_twice()) & nights.finished() or len(nights.started_twice()) <= 2


@pytest.mark.slow
def test_a_sweep_as_a_block(
    orchestrator: PrefectOrchestrator, head: Head, log: Path, tmp_path: Path, prefect_settings: None
) -> None:
    from raysweep_prefect import RayCluster, SweepJob

    SweepJob(spec=spec(log, tmp_path, num_samples=3), cluster=RayCluster.load(BLOCK), key="block").save(
        "quick"
    )
    loaded = SweepJob.load("quick")
    assert head.token not in repr(loaded)
    run = loaded.trigger()
    run.wait_for_completion()
    outcome = run.fetch_result()
    assert isinstance(outcome, rs.SweepOutcome)
    assert outcome.counts == {"completed": 3}

    async def attached() -> rs.SweepOutcome:
        again = await loaded.atrigger()
        assert again.job.how == "finished"
        found: rs.SweepOutcome = await again.afetch_result()
        return found

    assert asyncio.run(attached()) == outcome

    begun = log.stat().st_size

    async def cancelled() -> str:
        job = SweepJob(
            spec=spec(log, tmp_path, num_samples=500), cluster=await RayCluster.aload(BLOCK), key="long"
        )
        running = await job.trigger()  # in async code the plain name is the async one
        await asyncio.to_thread(wait_for, lambda: log.stat().st_size > begun, 60)
        assert await running.acancel("enough")
        ended = await running.await_for_completion()
        with pytest.raises(rs.SweepFailedError, match="cancelled"):
            await running.afetch_result()
        return f"{ended.status}: {ended.why}"

    assert "cancelled: " in asyncio.run(cancelled())


@pytest.mark.slow
def test_a_cancelled_run_ends_the_sweeps_of_its_subflows(
    nights: Nights, orchestrator: PrefectOrchestrator, log: Path, tmp_path: Path
) -> None:
    deployment = deploy(orchestrator.servers, "sweep_many", "many", {"cluster": BLOCK})
    parameters = {
        "data_sets": {"east": {"pause": 0.0}, "west": {"pause": 1.0}},
        "spec": spec(log, tmp_path, num_samples=40),
    }
    run = create(orchestrator.servers, deployment, parameters)
    nights.until(lambda: len(nights.noted("end")) >= 42, 200)
    orchestrator.cancel(run)
    nights.cluster.wait_until_clean(STOP_S)
    orchestrator.wait_for(run, "CANCELLED")
    outcomes = {path.parent.name: path for path in (tmp_path / "sweeps").glob("night-*/outcome.json")}
    statuses = {
        name.split("-")[1]: rs.SweepOutcome.from_json(p.read_bytes()).status for name, p in outcomes.items()
    }
    assert statuses == {"east": "completed", "west": "cancelled"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_is_replaced_costs_the_sweep_nothing(
    nights: Nights, orchestrator: PrefectOrchestrator, how: signal.Signals
) -> None:
    run = nights.begin(num_samples=40, pause=1.0)
    nights.until(lambda: len(nights.noted("end")) >= 2)
    orchestrator.servers.end("worker", how)
    orchestrator.servers.start_worker()
    deadline = time.monotonic() + 200
    while orchestrator.state(run, "sweep") != "success":
        if orchestrator.state(run, "sweep") in ("failed", "cancelled"):
            orchestrator.again(run)  # what an automation, or a person, does with a crashed run
        assert time.monotonic() < deadline, orchestrator.message(run, "sweep")
        time.sleep(0.5)
    assert nights.outcome().counts == {"completed": 40}
    assert not nights.started_twice()
    assert len(nights.jobs()) == 1


def events_of(orchestrator: PrefectOrchestrator, what: str, sweep_id: str) -> list[dict[str, Any]]:
    """The events of one sweep, the newest first."""
    found = orchestrator.events(f"raysweep.sweep.{what}")
    return [each for each in found if each["resource"]["prefect.resource.id"] == f"raysweep.sweep.{sweep_id}"]


@pytest.fixture
def prefect_settings(prefect_servers: LocalPrefect) -> Iterator[None]:
    """This process uses the server too."""
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    with temporary_settings({PREFECT_API_URL: prefect_servers.api, PREFECT_HOME: prefect_servers.home}):
        yield


@pytest.fixture
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    arguments += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", headless=True, args=arguments
        )
        try:
            yield browser.new_page(viewport={"width": 1280, "height": 1600})
        finally:
            browser.close()
