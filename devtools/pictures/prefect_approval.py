"""Pictures of an approval in Prefect: the form of a paused flow run, and the run after the decision."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from devtools.head import free_ports
from devtools.pictures.browser import THEMES, Browser
from devtools.prefect.local import LocalPrefect

ROOT: Final = Path(__file__).resolve().parents[2]
NIGHT_S: Final = 600.0
PROGRAM: Final = """
import json, sys
from raysweep_prefect import nightly_sweep
nightly_sweep(**json.loads(sys.argv[1]))
"""


def make(browser: Browser) -> None:
    """Start a Prefect server, run the night of the example `quick` beside it, and take the pictures.

    Raises:
        LocalServersError: The server does not start.
        TimeoutError: The flow does not come so far.
    """
    with tempfile.TemporaryDirectory(prefix="raysweep-pictures-") as folder:
        servers = LocalPrefect(Path(folder, "home"), port=free_ports(1)[0])
        night = {
            "spec": str(ROOT / "examples/quick/sweep.yaml"),
            "gate_spec": {"confirm_top_k": 2, "seeds": 3, "test": "mean"},
            "approval": {"timeout": 4 * 3600.0},
            "key": "2026-11-27",
            "storage_path": str(Path(folder, "sweeps")),
        }
        try:
            servers.start_server()
            command = [sys.executable, "-c", PROGRAM, json.dumps(night)]
            environment = servers.environment | {"HOME": folder, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(command, cwd=ROOT, env=environment) as flow:
                try:
                    _follow(browser, servers)
                finally:
                    flow.terminate()
        finally:
            servers.close()


def _follow(browser: Browser, servers: LocalPrefect) -> None:
    def run() -> dict[str, Any]:
        found = servers.ask("POST", "/flow_runs/filter", {})
        return dict(found[0]) if found else {"state_type": ""}

    _wait(lambda: run()["state_type"] == "PAUSED")
    run_id = run()["id"]
    _take(browser, servers, run_id, "prefect-approval", _open_form)
    given = {"run_input": {"approved": True, "by": "ann", "note": "looked at the curves"}}
    servers.ask("POST", f"/flow_runs/{run_id}/resume", given)
    _wait(lambda: run()["state_type"] == "COMPLETED")
    _take(browser, servers, run_id, "prefect-approved", _open_tasks)


def _open_form(page: Any) -> None:
    page.get_by_role("button", name="Resume").first.click()
    page.get_by_text("waits for approval").first.wait_for(timeout=90_000)


def _open_tasks(page: Any) -> None:
    page.get_by_text("Task Runs", exact=True).first.click()
    page.get_by_text("approval 2026-11-27").first.wait_for(timeout=90_000)


def _take(
    browser: Browser, servers: LocalPrefect, run_id: str, name: str, show: Callable[[Any], None]
) -> None:
    for theme in THEMES:
        page: Any = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme=theme)
        # Prefect's pages begin in dark, whatever the browser prefers.
        page.add_init_script(f"localStorage.setItem('color-scheme', JSON.stringify({theme!r}))")
        page.goto(f"{servers.address}/runs/flow-run/{run_id}", wait_until="networkidle")
        show(page)
        browser.keep(page, f"{name}-{theme}")
        page.close()


def _wait(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + NIGHT_S
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError("the flow does not come so far")
        time.sleep(0.5)
