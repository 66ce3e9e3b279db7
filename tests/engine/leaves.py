"""Trainables that leave processes behind, in sessions of their own. Each process writes a line to `log`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import raysweep as rs

DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
with open(sys.argv[1], "a") as log:
    log.write(f"pid {os.getpid()}\\n")
time.sleep(600)
"""
RANK = """
import os, sys, time
with open(sys.argv[1], "a") as log:
    log.write(f"pid {os.getpid()}\\n")
time.sleep(600)
"""


def pids(log: str) -> list[int]:
    with open(log) as file:
        return [int(line.split()[1]) for line in file if line.startswith("pid")]


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def start_strays(log: str) -> None:
    """A child, and a daemon by the book that is given an empty environment; returns once both run."""
    known = len(pids(log))
    with open(log, "a") as file:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        file.write(f"pid {child.pid}\n")
    subprocess.run([sys.executable, "-I", "-c", DAEMON, log], env={}, check=True)
    while len(pids(log)) < known + 2:
        time.sleep(0.01)


def leaves(config: dict[str, Any]) -> dict[str, Any]:
    """Starts strays. Of those of the trials before, says how many run; then ends as `config["end"]` says."""
    log, end = config["log"], config.get("end", "returns")
    before = sum(map(is_alive, pids(log)))
    start_strays(log)
    if end == "kills itself":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "kills its worker":
        rs.report({"loss": 1.0})
        os.kill(config_worker(), signal.SIGKILL)
        time.sleep(60)
    if end == "waits":
        rs.report({"loss": 1.0})
        time.sleep(600)
    return {"loss": 1.0, "before": before}


def config_worker() -> int:
    """Ray's worker, which this process is, or which started its fork server."""
    with open("/proc/self/cmdline", "rb") as file:
        if file.read().startswith(b"ray::"):
            return os.getpid()
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def pooled(config: dict[str, Any]) -> dict[str, Any]:
    """Computes in a pool that its module keeps from trial to trial."""
    global _pool
    if _pool is None:
        from concurrent.futures import ProcessPoolExecutor

        _pool = ProcessPoolExecutor(1)
    return {"loss": 1.0, "pooled_by": _pool.submit(os.getpid).result()}


_pool: Any = None


def by_torchrun(config: dict[str, Any]) -> None:
    """Trains by torchrun, and fails once both of its workers are up, each in a session of its own."""
    script = config["log"] + ".py"
    with open(script, "w") as file:
        file.write(RANK)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    agent = subprocess.Popen([*torchrun, script, config["log"]])
    while len(pids(config["log"])) < 2 and agent.poll() is None:
        time.sleep(0.05)
    raise RuntimeError("up")
