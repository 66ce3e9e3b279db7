"""Pictures of Airflow's page of a sweep, while it runs and after: the nightly DAG on the flights."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any, Final

import httpx

from devtools.airflow.local import USER, LocalAirflow, connection_to
from devtools.head import LocalHead, free_ports
from devtools.pictures.browser import THEMES, Browser

ROOT: Final = Path(__file__).resolve().parents[2]
DAG: Final = "nightly_sweep"
PAGE_S: Final = 180.0
NIGHT_S: Final = 900.0
RUNNING: Final = "/(\\d+) of 30 trials ended/.exec(document.body.innerText)?.[1] >= 8"
ENDED: Final = "document.querySelector('main[data-status=completed]')"
"""The moment of the two pictures, as the sweep's page shows it in its frame."""


def make(browser: Browser) -> None:
    """Start Airflow and a Ray head, and take the pictures of the night that Airflow begins by itself.

    Raises:
        LocalServersError: A server does not start, or the night does not begin.
    """
    with tempfile.TemporaryDirectory(prefix="raysweep-pictures-") as folder, LocalHead(num_cpus=2) as head:
        sweeps = Path(folder, "sweeps")
        sweeps.mkdir()
        ours = {"RAYSWEEP_EXAMPLE": "flights", "PYTHONPATH": str(ROOT)}
        environment = connection_to(head, str(sweeps)) | ours
        home, port = Path(folder, "home"), free_ports(1)[0]
        with LocalAirflow(home, dags=ROOT / "dags", port=port, environment=environment) as airflow:
            run_id = first_run(airflow)
            address = f"{airflow.address}/dags/{DAG}/runs/{run_id}/tasks/sweep/plugin/raysweep"
            pages = {theme: open_page(browser, airflow, address, theme) for theme in THEMES}
            for name, is_there in (("airflow-running", RUNNING), ("airflow-ended", ENDED)):
                for theme, page in pages.items():
                    _wait(page, is_there)
                    browser.keep(page, f"{name}-{theme}")


def first_run(airflow: LocalAirflow) -> str:
    """The run that Airflow begins when it reads the DAG."""
    found: list[str] = []

    def has_begun() -> bool:
        found.extend(run["dag_run_id"] for run in ask(airflow, "dagRuns").get("dag_runs", ()))
        return bool(found)

    airflow.wait_until(has_begun, PAGE_S)
    return found[0]


def ask(airflow: LocalAirflow, path: str) -> Any:
    """An answer of Airflow's API about the DAG."""
    login = httpx.post(
        f"{airflow.address}/auth/token",
        json={"username": USER, "password": airflow.password},
        trust_env=False,
        timeout=30,
    )
    answer = httpx.get(
        f"{airflow.address}/api/v2/dags/{DAG}/{path}",
        headers={"Authorization": f"Bearer {login.json()['access_token']}"},
        trust_env=False,
        timeout=30,
    )
    return answer.json()


def open_page(browser: Browser, airflow: LocalAirflow, address: str, theme: str) -> Any:
    """A page of Airflow, logged in."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=theme)
    page.add_init_script(f"localStorage.setItem('theme', {json.dumps(theme)})")
    page.goto(airflow.address)
    page.locator('input[name="username"]').fill(USER, timeout=PAGE_S * 1000)
    page.locator('input[name="password"]').fill(airflow.password)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"^{re.escape(airflow.address)}/(?!auth)"), timeout=PAGE_S * 1000)
    page.goto(address)
    return page


def _wait(page: Any, is_there: str) -> None:
    """Wait until the frame of the sweep's page shows it. Its policy forbids the waits of Playwright."""
    for _ in range(int(NIGHT_S)):
        frames = [frame for frame in page.frames if "/raysweep/" in frame.url]
        if frames and frames[0].evaluate(f"() => !!({is_there})"):
            return
        page.wait_for_timeout(1000)
    raise TimeoutError(f"the page of the sweep does not show {is_there}")
