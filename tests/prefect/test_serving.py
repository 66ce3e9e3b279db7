"""`make prefect`: everything starts, says where it is, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from devtools.servers import processes_with
from tests.jobs.head import ROOT

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]


def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    mark = os.urandom(8).hex()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "devtools.prefect.serving",
                "--home",
                str(tmp_path / "home"),
                "--port",
                "0",
            ],
            cwd=ROOT,
            env=kept | {"COLUMNS": "200", "RAYSWEEP_TEST_MARK": mark, "HOME": str(tmp_path)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            deadline = time.monotonic() + 400
            while "Ctrl-C ends all of it" not in (said := (tmp_path / "output").read_text()):
                assert process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.2)
            address = re.search(r"Prefect +(http://127\.0\.0\.1:\d+)", said)
            assert address is not None, said
            with httpx.Client(base_url=address.group(1), trust_env=False, timeout=30) as client:
                assert client.get("/").status_code == 200
                deployments = client.post("/api/deployments/filter", json={}).json()
                assert {each["name"] for each in deployments} == {"flights", "on-sweep"}
                for each in deployments:
                    assert each["parameters"]["storage_path"] == str(tmp_path / "home" / "sweeps")
                    (step,) = each["pull_steps"]
                    (options,) = step.values()
                    # Filled in when it is deployed, or by the worker, which was started in the same folder.
                    assert options["directory"] in (str(ROOT), "{{ $PWD }}")
                automations = client.post("/api/automations/filter", json={}).json()
                assert [each["name"] for each in automations] == ["train-what-a-sweep-found"]
            # A terminal sends it to the whole group.
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            left = processes_with("RAYSWEEP_TEST_MARK", mark)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    said = (tmp_path / "output").read_text()
    assert said.rstrip().endswith("ended"), said
    assert not re.search("Traceback", said), said
    assert left == []
