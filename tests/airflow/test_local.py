"""`make airflow` and `make nightly-airflow`: they come up, tell what one needs to know, and leave nothing."""

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
from tests.airflow.servers import ROOT, wait_until

MARK = "RAYSWEEP_TEST_LOCAL"


def environment(mark: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "RAY_"))}
    return clean | {MARK: mark, "COLUMNS": "200", "NO_PROXY": "*"}


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_airflow_comes_up_and_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    mark = os.urandom(8).hex()
    output = tmp_path / "output"
    command = ["devtools.airflow.serving", "--port", "0", "--home", str(tmp_path / "home")]
    with open(output, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=environment(mark),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: "Ctrl-C" in output.read_text() or process.poll() is not None, "it does not come up", 200
        )
        text = output.read_text()
        assert process.poll() is None, text
        address = re.search(r"Airflow +(http://\S+)", text)
        login = re.search(r"login +(\S+) +(\S+)", text)
        assert address is not None, text
        assert login is not None, text
        with httpx.Client(base_url=address[1], trust_env=False, timeout=30) as client:
            assert client.get("/api/v2/monitor/health").json()["scheduler"]["status"] == "healthy"
            token = client.post("/auth/token", json={"username": login[1], "password": login[2]}).json()
            client.headers["Authorization"] = f"Bearer {token['access_token']}"

            def dags() -> bool:
                found = client.get("/api/v2/dags").json()["dags"]
                return {each["dag_id"] for each in found} >= {"nightly_sweep", "find_best", "sweep_many"}

            wait_until(dags, "the DAGs are not there", 60)
        assert len(processes_with(MARK, mark)) > 5
        # As a terminal does: to the command, and to nobody below it.
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert output.read_text().rstrip().endswith("ended")
        wait_until(lambda: not processes_with(MARK, mark), "something is left", 5)
    finally:
        process.kill()
        process.wait()
        for pid in processes_with(MARK, mark):
            os.kill(pid, signal.SIGKILL)


def nightly(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    places = ("--storage", str(root / "sweeps"), "--home", str(root / "airflow"), "--example", "quick")
    return subprocess.run(
        [sys.executable, "-m", "devtools.airflow.nightly", *places, *arguments],
        cwd=ROOT,
        env=environment(""),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_the_night_without_servers(tmp_path: Path) -> None:
    # A deadline in words would be near at some time of the day.
    deadline = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 7200))
    done = nightly(tmp_path, "--deadline", deadline)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8 trials ended" in done.stdout
    assert "there was no champion" in done.stdout
    assert re.search(r"full scale +loss=", done.stdout)
    assert len(done.stdout.splitlines()) < 40
    assert done.stderr == ""


@pytest.mark.servers
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_a_night_that_fails_says_why(tmp_path: Path) -> None:
    failed = nightly(tmp_path, "--deadline", "when the cock crows")
    assert failed.returncode == 1
    assert "The DAG failed" in failed.stderr
    assert "when the cock crows" in failed.stderr
    assert "dags-test.log" in failed.stderr


def test_an_example_that_is_not_there(tmp_path: Path) -> None:
    refused = nightly(tmp_path, "--example", "nothing")
    assert refused.returncode == 2
    assert "nothing/sweep.yaml" in refused.stderr
    assert not (tmp_path / "airflow").exists()
