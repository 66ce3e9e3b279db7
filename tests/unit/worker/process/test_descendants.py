"""Processes that an attempt leaves behind are found and ended; those that others own stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.worker.process.descendants import SHOWN
from tests.engine.leaves import is_alive

START = """
import os, subprocess, sys, time
from multiprocessing import get_context
from raysweep.worker.process import stray_guard
from raysweep.worker.process.descendants import Descendants, unrelated

def daemon():
    "In a session of its own, its parents gone; and forked, not executed."
    read, write = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(write, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))

def sleep(**options):
    return subprocess.Popen(["sleep", "600"], start_new_session=True, **options).pid
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], list[str]]:
    """Run code after `START`; the lines that it prints. It may kill itself."""

    def run(code: str) -> list[str]:
        script = tmp_path / "script.py"
        script.write_text(START + code)
        with open(tmp_path / "out", "w+") as out:  # a pipe would stay open in what it leaves behind
            subprocess.run([sys.executable, str(script)], stdout=out, timeout=60, check=False)
            out.seek(0)
            return out.read().splitlines()

    return run


def gone(pid: str, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while is_alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(int(pid))


def test_what_an_attempt_starts_is_ended_and_named(program: Callable[[str], list[str]]) -> None:
    before, child, stray, grandchild, *line = program("""
strays = Descendants()
before = sleep()
strays.begin()
child, stray = sleep(), daemon()
sh = ["sh", "-c", "sleep 600 & echo $!; wait"]
shell = subprocess.Popen(sh, stdout=subprocess.PIPE, start_new_session=True)
grandchild = int(shell.stdout.readline())
line = strays.end()
print(before, child, stray, grandchild, line.strip(), sep="\\n")
again = strays.end()
assert not again and not shell.wait(), again
os.kill(before, 0)
""")
    assert gone(child, 0)
    assert gone(stray, 0)
    assert gone(grandchild, 0)
    assert line[0].startswith("[raysweep: ended 4 processes that the trial had left running: sleep, ")
    os.kill(int(before), 9)


def test_the_line_is_bounded(program: Callable[[str], list[str]]) -> None:
    (line,) = program("""
strays = Descendants()
strays.begin()
for _ in range(20): daemon()
print(strays.end().strip())
""")
    assert line.startswith("[raysweep: ended 20 processes")
    assert line.endswith(", …]")
    assert line.count("python") == SHOWN


def test_processes_that_start_others_meanwhile_are_ended_too(program: Callable[[str], list[str]]) -> None:
    (pid,) = program("""
strays = Descendants()
strays.begin()
if not os.fork():
    while True:
        if os.fork():
            os._exit(0)
time.sleep(0.2)
strays.end()
print(os.getpid() if not strays._find() else 0)
""")
    assert int(pid)


POOLS = {
    "multiprocessing.Pool": """
pool = get_context("fork").Pool(1)
use = lambda: pool.apply(os.getpid)
""",
    "an executor": """
from concurrent.futures import ProcessPoolExecutor
pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
use = lambda: pool.submit(os.getpid).result()
""",
    "a manager": """
pool = get_context("fork").Manager()
use = lambda: pool.Namespace()._token.address
""",
    "joblib": """
from joblib import Parallel, delayed
use = lambda: Parallel(2)(delayed(os.getppid)() for _ in range(2))[0]
""",
}


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_of_this_process_stays_and_works(pool: str, program: Callable[[str], list[str]]) -> None:
    if pool == "joblib":
        pytest.importorskip("joblib")
    first, second, line = program(f"""
strays = Descendants(keeps_pools=True)
strays.begin()
{POOLS[pool]}
first, child = use(), sleep()
line = strays.end().strip()
print(first, use(), line, sep="\\n", flush=True)
assert not os.path.exists(f"/proc/{{child}}")
import psutil
for each in psutil.Process().children(recursive=True):
    each.kill()
os._exit(0)
""")
    assert first == second
    assert line == "[raysweep: ended 1 process that the trial had left running: sleep]"


def test_a_worker_that_is_killed_takes_all_along_but_what_is_unrelated(
    program: Callable[[str], list[str]],
) -> None:
    child, bare, stray, keeper = program("""
stray_guard.guard_descendants()
strays = Descendants()
with unrelated():
    keeper = daemon()
print(sleep(), sleep(env={}), daemon(), keeper, sep="\\n", flush=True)
os.kill(os.getpid(), 9)
""")
    assert gone(child)
    assert gone(bare)
    assert gone(stray)
    assert not gone(keeper, 0.3)
    os.kill(int(keeper), 9)


def test_workers_have_marks_of_their_own(program: Callable[[str], list[str]]) -> None:
    own, other = program("""
def worker(is_killed):
    pid = os.fork()
    if not pid:
        stray_guard.guard_descendants()
        print(sleep(), flush=True)
        os.kill(os.getpid(), 9) if is_killed else time.sleep(3)
        os._exit(0)
worker(False)
time.sleep(0.5)
worker(True)
time.sleep(1)
""")
    assert gone(other)
    assert not gone(own, 0.1)
    assert gone(own)


def test_the_processes_of_an_object_that_serves_the_next_attempt_stay(
    program: Callable[[str], list[str]],
) -> None:
    pid, *rest = program("""
kept = [True]
strays = Descendants(keeps_all=lambda: kept[0])
strays.begin()
pid = sleep()
assert strays.end() == ""
os.kill(pid, 0)
kept.clear(); kept.append(False)
strays.begin()
assert strays.end() == ""
print(pid)
""")
    assert not rest
    os.kill(int(pid), 9)
