"""The DAGs that ship on real Airflow servers and a real Ray head, and their page in a real browser.

Servers of their own: the page and the DAGs are looked at while other tests kill and restart theirs.
`RAYSWEEP_SCREENSHOTS=folder` keeps the pictures.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import httpx
import pytest

from devtools.airflow.local import Component
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.storage.objects.opening import open_store
from tests.airflow.servers import ROOT, Airflow, wait_until
from tests.browsers import Watched, chromium
from tests.jobs.head import Head

# In this order: a night by hand waits for the one that Airflow begins when the DAG is switched on.
pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]
DAG, RUN = "nightly_sweep", "by_hand"


class Site:
    """Airflow with the DAGs of `dags/`, where their sweeps are, and a night that was begun by hand."""

    def __init__(self, servers: Airflow, storage: Path) -> None:
        self.servers = servers
        self.storage = storage

    def wait(self, dag_id: str, run_id: str, *states: str, timeout_s: float = 300.0) -> dict[str, Any]:
        """Wait until the run has ended in one of these states; the run."""

        def ended() -> dict[str, Any] | None:
            run = self.servers.run(dag_id, run_id)
            return run if run["state"] in ("success", "failed") else None

        run: dict[str, Any] = wait_until(ended, f"{dag_id} {run_id} does not end", timeout_s)
        assert run["state"] in states, self.servers.logs(dag_id, run_id, "sweep")[-4000:]
        return run

    def keys(self) -> dict[str, str]:
        """The nights' keys at the storage, with their sweeps' ids; a gate's sweep has its night's key."""
        store = open_store(self.storage)
        names = [name for name in list_sweeps(store) if "-gate-" not in name]
        records = {name: SweepFolder(store, name).read_spec() for name in names}
        return {record.key: name for name, record in records.items() if record is not None}


@pytest.fixture(scope="module")
def site(running_head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("shipped")
    dags, storage = root / "dags", root / "sweeps"
    dags.mkdir()
    for path in (ROOT / "dags").iterdir():
        if path.is_file():
            (dags / path.name).symlink_to(path)
    environment = {"RAYSWEEP_EXAMPLE": "quick"}
    with Airflow(root / "home", dags=dags, parallelism=3, environment=environment) as servers:
        servers.add_connection(
            "raysweep_default",
            conn_type="raysweep",
            host="http://127.0.0.1",
            port=running_head.dashboard_port,
            password=running_head.token,
            extra=json.dumps({"storage_path": str(storage)}),
        )
        yield Site(servers, storage)


@pytest.fixture(scope="module")
def conf() -> dict[str, str]:
    """A quick night, whatever the time is."""
    return {"example": "quick", "deadline": (datetime.now(UTC) + timedelta(hours=3)).isoformat()}


# --- the night


def test_a_night_by_schedule(site: Site) -> None:
    """The last 22:00 in Berlin: Airflow runs it when the DAG is switched on."""
    servers = site.servers
    servers.wait_for_dag(DAG)

    def first() -> str | None:
        runs = servers.call("GET", f"/dags/{DAG}/dagRuns")["dag_runs"]
        return next((run["dag_run_id"] for run in runs if run["run_type"] == "scheduled"), None)

    run_id = wait_until(first, "no scheduled run", 60)
    run = site.wait(DAG, run_id, "success")
    at = datetime.fromisoformat(run["logical_date"]).astimezone(ZoneInfo("Europe/Berlin"))
    assert (at.hour, at.minute) == (22, 0)
    sweep = servers.xcom(DAG, run_id, "sweep")
    assert sweep["key"] == f"{DAG}/sweep/{run_id}"
    # The first night has no champion to beat.
    gate, train = servers.xcom(DAG, run_id, "gate"), servers.xcom(DAG, run_id, "train")
    assert gate["promoted"] is True
    assert train["config"]["rate"] == gate["best"]["config"]["rate"]
    assert train["config"]["rate"] in [each["config"]["rate"] for each in sweep["top_k"][:2]]


def test_a_night_by_hand_and_its_page(site: Site, conf: dict[str, str], tmp_path: Path) -> None:
    """The same by hand; the page follows the sweep, in Airflow's frame."""
    servers = site.servers
    servers.wait_for_dag(DAG)
    servers.trigger_run(DAG, RUN, conf)
    pictures = Path(os.environ.get("RAYSWEEP_SCREENSHOTS", tmp_path))
    pictures.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        watched = Watched(browser, viewport={"width": 1400, "height": 900})
        page = watched.page
        _log_in(page, servers)
        # Airflow's own page asks before it has a login, and is refused.
        watched.problems.clear()
        servers.wait_state(DAG, RUN, "sweep", "deferred", "success")
        task = f"{servers.address}/dags/{DAG}/runs/{RUN}/tasks/sweep"
        page.goto(task)
        job = servers.stored(DAG, RUN, "sweep")["raysweep_job"]
        job = json.loads(job) if isinstance(job, str) else job
        page.get_by_text(job["job_url"]).first.wait_for(timeout=90_000)
        page.screenshot(path=pictures / "log.png")
        # The tab that the plugin adds; then nothing is clicked or reloaded until the sweep has ended.
        page.locator('a[href$="/plugin/raysweep"]').first.click()
        frame = page.frame_locator("iframe")
        frame.locator("main[data-view]").wait_for(timeout=90_000)
        frame.locator("main[data-status=completed]").wait_for(timeout=120_000)
        text = frame.locator("main").inner_text()
        assert "8 of 8 trials ended" in text
        assert job["job_id"] in text
        assert job["job_url"] in text
        page.screenshot(path=pictures / "page.png")
        site.wait(DAG, RUN, "success")
        page.goto(f"{servers.address}/dags/{DAG}")
        page.get_by_text("sweep").first.wait_for(timeout=90_000)
        page.screenshot(path=pictures / "grid.png")
        page.close()
    assert watched.problems == []
    assert not [url for url in watched.asked if "/raysweep/" in url and not url.startswith(servers.address)]

    sweep, gate = (servers.xcom(DAG, RUN, task_id) for task_id in ("sweep", "gate"))
    assert sweep["status"] == "completed"
    # The same search as the night before, which is the champion: no gain, no training.
    assert gate["promoted"] is False
    assert servers.state(DAG, RUN, "train") == "skipped"


def _log_in(page: Any, servers: Airflow) -> None:
    page.goto(servers.address)
    page.locator('input[name="username"]').fill(servers.login["username"], timeout=90_000)
    page.locator('input[name="password"]').fill(servers.login["password"])
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"^{re.escape(servers.address)}/(?!auth)"), timeout=90_000)


def test_the_page_asks_for_the_login(site: Site) -> None:
    base = f"{site.servers.address}/raysweep"
    query = f"run_id={quote(RUN)}&task_id=sweep&map_index=-1"
    paths = (f"/dags/{DAG}/sweep.json?{query}", f"/dags/{DAG}/sweep?{query}", "/static/page.js")
    with httpx.Client(trust_env=False, timeout=30) as client:
        for path in paths:
            assert client.get(base + path).status_code == 401, path
            bad = client.get(base + path, headers={"Authorization": "Bearer none"})
            assert bad.status_code == 403, path
        for path in ("/docs", "/openapi.json", "/redoc"):
            assert client.get(base + path).status_code == 404, path
        headers = {"Authorization": f"Bearer {_token(site.servers)}"}
        data = client.get(base + paths[0], headers=headers).json()
        assert data["view"] in ("sweep", "message")
        missing = client.get(base + paths[0].replace(RUN, "nothing"), headers=headers).json()
        assert missing["title"] == "There is no such task instance"


def test_a_backfill_of_five_days_mixes_up_nothing(site: Site, conf: dict[str, str]) -> None:
    servers = site.servers
    servers.wait_for_dag(DAG)
    # It reads and writes in one transaction, which SQLite ends as soon as anybody else writes.
    writers: tuple[Component, ...] = ("scheduler", "triggerer", "dag-processor")
    for name in writers:
        servers.stop_component(name)
    servers.command(
        *("backfill", "create", "--dag-id", DAG, "--from-date", "2026-03-01", "--to-date", "2026-03-06"),
        *("--max-active-runs", "3", "--dag-run-conf", json.dumps(conf)),
    )
    for name in writers:
        servers.start_component(name)
    servers.wait_until_well()
    runs: list[str] = wait_until(lambda: _five(servers), "no five runs", 60)
    for run_id in runs:
        site.wait(DAG, run_id, "success", timeout_s=360)
    results = {run_id: servers.xcom(DAG, run_id, "sweep") for run_id in runs}
    assert len({result["sweep_id"] for result in results.values()}) == 5
    for run_id, result in results.items():
        assert result["key"] == f"{DAG}/sweep/{run_id}"
        assert site.keys()[result["key"]] == result["sweep_id"]
        assert result["counts"]["completed"] + result["counts"].get("stopped", 0) == 8
        # One sweep, one job.
        jobs = list(open_store(site.storage).list(f"{result['sweep_id']}/jobs"))
        assert len(jobs) == 1


def _five(servers: Airflow) -> list[str] | None:
    runs = servers.call("GET", f"/dags/{DAG}/dagRuns", limit=100)["dag_runs"]
    found = [run["dag_run_id"] for run in runs if run["run_type"] == "backfill"]
    return found if len(found) == 5 else None


def test_a_training_on_the_asset_of_a_sweep(site: Site) -> None:
    servers = site.servers
    for dag_id in ("find_best", "train_on_best"):
        servers.wait_for_dag(dag_id)
    servers.trigger_run("find_best", "one")
    site.wait("find_best", "one", "success")

    def consumer() -> str | None:
        runs = servers.call("GET", "/dags/train_on_best/dagRuns")["dag_runs"]
        return runs[0]["dag_run_id"] if runs else None

    run_id = wait_until(consumer, "the asset began no run", 60)
    site.wait("train_on_best", run_id, "success")
    best = servers.xcom("find_best", "one", "sweep")["best"]["config"]
    assert servers.xcom("train_on_best", run_id, "train")["config"]["rate"] == best["rate"]


def test_a_sweep_for_each_data_set(site: Site) -> None:
    servers = site.servers
    servers.wait_for_dag("sweep_many")
    servers.trigger_run("sweep_many", "two", {"airports": ["JFK", "LGA"], "num_samples": 2, "rows": 1000})
    site.wait("sweep_many", "two", "success", timeout_s=300)
    found = servers.xcom("sweep_many", "two", "compare")
    found = found if isinstance(found, dict) else json.loads(found)
    assert sorted(found) == ["flights-jfk", "flights-lga"]
    keys = [servers.xcom("sweep_many", "two", "sweep", map_index=index)["key"] for index in (0, 1)]
    assert keys == ["sweep_many/sweep/two[0]", "sweep_many/sweep/two[1]"]
    # The page of a mapped task.
    headers = {"Authorization": f"Bearer {_token(servers)}"}
    url = f"{servers.address}/raysweep/dags/sweep_many/sweep.json?run_id=two&task_id=sweep&map_index=1"
    data = httpx.get(url, headers=headers, trust_env=False, timeout=30).json()
    assert (data["name"], data["status"]) == ("flights-lga", "completed")


def _token(servers: Airflow) -> str:
    answer = httpx.post(f"{servers.address}/auth/token", json=servers.login, trust_env=False, timeout=30)
    return str(answer.json()["access_token"])
