"""What the tests of programs as trials share: specs, kills, the process table, and exact reports."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.conftest import wait_for


def spec_of(storage: Path, **fields: Any) -> rs.SweepSpec:
    failure = {"backoff_initial_s": 0.05, "breaker_trials": 0} | fields.pop("failure", {})
    plain: dict[str, Any] = {"name": "t", "metric": "loss", "mode": "min", "seed": 7, "search": "random"}
    return rs.SweepSpec(storage_path=str(storage), failure=failure, **plain | fields)


def running(*parts: str) -> list[int]:
    """The processes whose command line or environment has one of these texts."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            held = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
            if any(part.encode() in held for part in parts):
                found.append(int(entry.name))
    return found


def are_exact(rows: list[dict[str, Any]]) -> bool:
    """Whether report n is of epoch n, in each attempt without a gap.

    What was reported after the checkpoint that a retry begins from is reported again.
    """
    attempts = groupby(rows, key=lambda row: row["attempt"])
    made = [[row["epoch"] for row in group] for _, group in attempts]
    return all(row["epoch"] == row["iteration"] for row in rows) and all(
        epochs == list(range(epochs[0], epochs[-1] + 1)) for epochs in made
    )


def kill_at(path: Path, epoch: int, *, above: int = 0) -> None:
    """Kill the program that writes this file, once it has made so many epochs; or its `above`th parent."""
    pid = wait_for(lambda: reached(path, epoch))
    for _ in range(above):
        pid = parent_of(pid)
    os.kill(pid, signal.SIGKILL)


def reached(path: Path, epoch: int) -> int:
    """The pid of the program that writes this file, once it has made so many epochs; else 0."""
    with suppress(OSError, ValueError):
        pid, made = map(int, path.read_text().split())
        return pid if made >= epoch else 0
    return 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
