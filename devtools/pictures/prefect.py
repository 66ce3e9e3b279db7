"""Pictures of Prefect: a flow run while its sweep runs and after it, and the form of an approval.

The first are of the example `boosting`, the form is of a night of the example `quick`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from devtools.head import free_ports
from devtools.pictures.browser import THEMES, Browser
from devtools.prefect.local import LocalPrefect

ROOT: Final = Path(__file__).resolve().parents[2]
NIGHT_S: Final = 900.0
TRIALS: Final = 4
"""The pictures of the running sweep are taken when so many of 24 trials have ended."""
NIGHT: Final = """
import json, sys
from raysweep_prefect import nightly_sweep
nightly_sweep(**json.loads(sys.argv[1]))
"""


def make(browser: Browser) -> None:
    """Take the pictures of a flow run.

    Raises:
        LocalServersError: The server does not start.
        TimeoutError: The flow does not come so far.
    """
    _beside_server(lambda _: ["-m", "examples.boosting.flow"], lambda *given: _follow(browser, *given))


def make_approval(browser: Browser) -> None:
    """Take the pictures of a night that waits for a person. Raises: see `make`."""

    def command(folder: Path) -> Sequence[str]:
        night = {
            "spec": str(ROOT / "examples/quick/sweep.yaml"),
            "gate_spec": {"confirm_top_k": 2, "seeds": 3, "test": "mean"},
            "approval": {"timeout": 4 * 3600.0},
            "key": "2026-11-27",
            "storage_path": str(folder / "sweeps"),
        }
        return ["-c", NIGHT, json.dumps(night)]

    def follow(servers: LocalPrefect, flow: subprocess.Popen[bytes]) -> None:
        _wait(lambda: _flow_run(servers).get("state_type") == "PAUSED")
        _take(browser, servers, _flow_run(servers)["id"], "prefect-approval", _open_form)

    _beside_server(command, follow)


def _beside_server(
    command: Callable[[Path], Sequence[str]], follow: Callable[[LocalPrefect, subprocess.Popen[bytes]], None]
) -> None:
    """Start a Prefect server, run a program of Python with a flow beside it, and follow it."""
    with tempfile.TemporaryDirectory(prefix="raysweep-pictures-") as folder:
        servers = LocalPrefect(Path(folder, "home"), port=free_ports(1)[0])
        try:
            servers.start_server()
            program = [sys.executable, *command(Path(folder))]
            environment = servers.environment | {"HOME": folder, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(program, cwd=ROOT, env=environment) as flow:
                try:
                    follow(servers, flow)
                finally:
                    flow.terminate()
        finally:
            servers.close()


def _follow(browser: Browser, servers: LocalPrefect, flow: subprocess.Popen[bytes]) -> None:
    def progress() -> float:
        found = servers.ask("POST", "/artifacts/latest/filter", {})
        return max((each["data"] for each in found if each["type"] == "progress"), default=0.0)

    _wait(lambda: progress() >= 100 * TRIALS / 24)
    run = _flow_run(servers)
    flow.send_signal(signal.SIGSTOP)  # it stands still while the pictures are taken
    try:
        _take(browser, servers, run["id"], "prefect-running", _open_artifacts)
    finally:
        flow.send_signal(signal.SIGCONT)
    _wait(lambda: flow.poll() is not None)
    _take(browser, servers, run["id"], "prefect-ended", _open_artifacts)


def _flow_run(servers: LocalPrefect) -> dict[str, Any]:
    """The run that no task of another one began; empty: there is none yet."""
    runs = servers.ask("POST", "/flow_runs/filter", {})
    return next((dict(run) for run in runs if run["parent_task_run_id"] is None), {})


def _open_artifacts(page: Any) -> None:
    page.get_by_text("Artifacts", exact=True).first.click()
    page.get_by_text("raysweep-boosting-progress").first.wait_for(timeout=90_000)


def _open_form(page: Any) -> None:
    page.get_by_role("button", name="Resume").first.click()
    page.get_by_text("waits for approval").first.wait_for(timeout=90_000)


def _take(
    browser: Browser, servers: LocalPrefect, run_id: str, name: str, show: Callable[[Any], None]
) -> None:
    for theme in THEMES:
        page: Any = browser.new_page(viewport={"width": 1280, "height": 1100}, color_scheme=theme)
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
        time.sleep(1.0)
