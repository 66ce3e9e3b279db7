"""Pictures of an approval in Airflow: the form while it waits for a person."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from devtools.airflow.local import LocalAirflow, connection_to
from devtools.head import LocalHead, free_ports
from devtools.pictures.airflow import DAG, ROOT, ask, first_run, open_page
from devtools.pictures.browser import THEMES, Browser

NIGHT_S: Final = 600.0
SHOWN_MS: Final = 60_000


def make(browser: Browser) -> None:
    """Start Airflow and a Ray head, wait for the quick example's approval, take the pictures.

    Raises:
        LocalServersError: A server does not start, or the task does not come to wait.
    """
    with tempfile.TemporaryDirectory(prefix="raysweep-pictures-") as folder, LocalHead(num_cpus=2) as head:
        sweeps = Path(folder, "sweeps")
        sweeps.mkdir()
        ours = {
            "RAYSWEEP_EXAMPLE": "quick",
            "RAYSWEEP_APPROVAL": "required",
            "PYTHONPATH": str(ROOT),
        }
        environment = connection_to(head, str(sweeps)) | ours
        home, port = Path(folder, "home"), free_ports(1)[0]
        with LocalAirflow(home, dags=ROOT / "dags", port=port, environment=environment) as airflow:
            run_id = first_run(airflow)
            task = f"dagRuns/{run_id}/taskInstances/approve"
            airflow.wait_until(lambda: ask(airflow, task).get("state") == "awaiting_input", NIGHT_S)
            address = f"{airflow.address}/dags/{DAG}/runs/{run_id}/tasks/approve/required_actions"
            pages = {theme: open_page(browser, airflow, address, theme) for theme in THEMES}
            for theme, page in pages.items():
                page.get_by_role("button", name="Approve").wait_for(timeout=SHOWN_MS)
                browser.keep(page, f"approval-waiting-{theme}")
