"""Pictures of a flow run in Prefect, while its sweep runs and after: the flow of the example `boosting`."""

from __future__ import annotations

import signal
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
NIGHT_S: Final = 900.0
TRIALS: Final = 4
"""The pictures of the running sweep are taken when so many of 24 trials have ended."""


def make(browser: Browser) -> None:
    """Start a Prefect server, run the flow beside it, and take the pictures.

    Raises:
        LocalServersError: The server does not start.
        TimeoutError: The flow does not come so far.
    """
    with tempfile.TemporaryDirectory(prefix="raysweep-pictures-") as folder:
        servers = LocalPrefect(Path(folder, "home"), port=free_ports(1)[0])
        try:
            servers.start_server()
            command = [sys.executable, "-m", "examples.boosting.flow"]
            environment = servers.environment | {"HOME": folder, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(command, cwd=ROOT, env=environment) as flow:
                try:
                    _follow(browser, servers, flow)
                finally:
                    flow.terminate()
        finally:
            servers.close()


def _follow(browser: Browser, servers: LocalPrefect, flow: subprocess.Popen[bytes]) -> None:
    def progress() -> float:
        found = servers.ask("POST", "/artifacts/latest/filter", {})
        return max((each["data"] for each in found if each["type"] == "progress"), default=0.0)

    _wait(lambda: progress() >= 100 * TRIALS / 24)
    (run,) = [
        run for run in servers.ask("POST", "/flow_runs/filter", {}) if run["parent_task_run_id"] is None
    ]
    flow.send_signal(signal.SIGSTOP)  # it stands still while the pictures are taken
    try:
        _take(browser, servers, run["id"], "prefect-running")
    finally:
        flow.send_signal(signal.SIGCONT)
    _wait(lambda: flow.poll() is not None)
    _take(browser, servers, run["id"], "prefect-ended")


def _take(browser: Browser, servers: LocalPrefect, run_id: str, name: str) -> None:
    for theme in THEMES:
        page: Any = browser.new_page(viewport={"width": 1280, "height": 1100}, color_scheme=theme)
        # Prefect's pages begin in dark, whatever the browser prefers.
        page.add_init_script(f"localStorage.setItem('color-scheme', JSON.stringify({theme!r}))")
        page.goto(f"{servers.address}/runs/flow-run/{run_id}", wait_until="networkidle")
        page.get_by_text("Artifacts", exact=True).first.click()
        page.get_by_text("raysweep-boosting-progress").first.wait_for(timeout=90_000)
        browser.keep(page, f"{name}-{theme}")
        page.close()


def _wait(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + NIGHT_S
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError("the flow does not come so far")
        time.sleep(1.0)
