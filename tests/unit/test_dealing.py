"""Which process a test runs in: no server is started twice, and no core waits for the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.dealing import place_of, scope_of

ROOT = Path(__file__).parents[2]

_CONFTEST = """
import os
import pytest
from tests.dealing import TwoEnds

@pytest.hookimpl
def pytest_xdist_make_scheduler(config, log):
    return TwoEnds(config, log)

@pytest.fixture(autouse=True)
def place(request):
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(os.environ["PYTEST_XDIST_WORKER"] + " " + request.node.nodeid + chr(10))
"""


def test_a_file_stays_in_one_process_and_the_processes_meet(tmp_path: Path) -> None:
    """On a suite of its own: one slow folder in front, many quick files behind."""
    seen = tmp_path / "seen"
    (tmp_path / "tests" / "airflow").mkdir(parents=True)
    (tmp_path / "tests" / "unit").mkdir()
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    slow = "import time, pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): time.sleep(0.3)\n"
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / "tests" / "airflow" / name).write_text(slow)
    for number in range(6):
        # Some with more tests than any in front.
        count = 20 if number in (2, 3) else 3
        quick = slow.replace("0.3", "0").replace("range(3)", f"range({count})")
        (tmp_path / "tests" / "unit" / f"test_{number}.py").write_text(quick)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--rootdir", "."]
    ran = subprocess.run(
        [*command, "--import-mode=importlib", "tests"],
        cwd=tmp_path,
        env={"SEEN": str(seen), "PYTHONPATH": f"{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert "58 passed" in ran.stdout, ran.stdout + ran.stderr
    by_process: dict[str, list[str]] = {}
    for line in seen.read_text().splitlines():
        process, _, nodeid = line.partition(" ")
        by_process.setdefault(process, []).append(scope_of(nodeid))
    assert by_process.keys() == {"gw0", "gw1"}
    assert not set(by_process["gw0"]) & set(by_process["gw1"]), "a file was torn apart"
    assert by_process["gw0"][:6] == ["tests/airflow"] * 6, "Airflow's files are one, and the first"
    assert by_process["gw1"][0] == "tests/unit/test_5.py", "the second begins at the other end"


def test_every_folder_has_its_place() -> None:
    """What waits for servers is in front of what computes; a new folder does not go last."""
    assert place_of("tests/airflow/test_x.py") < place_of("tests/engine/test_x.py")
    assert place_of("tests/engine/test_x.py") < place_of("tests/new/test_x.py::test_it[a/b]")
    assert place_of("tests/new/test_x.py") < place_of("tests/unit/core/test_x.py")
