"""Prefect's temporary server ends with the process that started it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.servers import processes_with
from tests.engine.conftest import wait_for
from tests.jobs.head import ROOT

PROGRAM = "from devtools.prefect.embedded import prefect_server\nwith prefect_server(): input()"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_server_is_left_behind_by_a_process_that_was_killed(tmp_path: Path) -> None:
    """At the worst moment: the server is on its way, and does not answer yet."""
    mark = os.urandom(8).hex()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=kept | {"PREFECT_HOME": str(tmp_path), "HOME": str(tmp_path), "RAYSWEEP_TEST_MARK": mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def commands() -> list[str]:
        pids = processes_with("RAYSWEEP_TEST_MARK", mark)
        return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids]

    try:
        wait_for(lambda: any("uvicorn" in command for command in commands()), 90)
        process.kill()
        process.wait(10)
        wait_for(lambda: not commands(), 20)
    finally:
        for pid in processes_with("RAYSWEEP_TEST_MARK", mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
