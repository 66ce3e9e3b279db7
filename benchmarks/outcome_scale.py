"""outcome-scale: what the end of a large sweep costs, and what a look at it costs afterwards.

The sweep is that of `report`: trials of 9 parameters with 3 reports each. Its outcome is made of its state
and stored; then each command runs in a process of its own. Seconds are of the processor, user and system.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from benchmarks.measure import Json, significant, target
from benchmarks.report import finish, run_events
from raysweep.runs.folder import SweepFolder

TRIALS: Final = 100_000
REPORTS: Final = 3
LOADS: Final = (
    "import sys, raysweep as rs; outcome = rs.load(sys.argv[1]); print(len(outcome), outcome[0].score)"
)
_KIB: Final = 1024


def run(rounds: int, *, trials: int = TRIALS) -> Json:
    """Memory at the outcome, once; the fastest round of each command."""
    with tempfile.TemporaryDirectory() as name:
        folder, figures = _end(Path(name), trials)
        cli = [sys.executable, "-m", "raysweep.cli"]
        at = ["--storage", folder.store.url]
        commands = {
            "status": [*cli, "status", folder.sweep_id, *at],
            "best": [*cli, "best", folder.sweep_id, *at],
            "trials --top 10": [*cli, "trials", folder.sweep_id, "--top", "10", *at],
            "trials --top 100": [*cli, "trials", folder.sweep_id, "--top", "100", *at],
            "rs.load": [sys.executable, "-c", LOADS, folder.uri],
        }
        looks = {
            each: min((_look(command) for _ in range(rounds)), key=_cpu_s)
            for each, command in commands.items()
        }
    return {
        "what": f"the outcome of {trials} trials of 9 parameters, one attempt each",
        "load": round(os.getloadavg()[0], 1),
        "outcome": figures,
        "commands": looks,
        "targets": [
            target("kB a trial at the outcome's peak", figures["peak_bytes_per_trial"] / 1000, at_most=1.5),
            target("status, s of the processor", looks["status"]["cpu_s"], at_most=0.5),
            target("best, s of the processor", looks["best"]["cpu_s"], at_most=0.5),
            target("trials --top 10, s of the processor", looks["trials --top 10"]["cpu_s"], at_most=1.0),
        ],
    }


def _end(root: Path, trials: int) -> tuple[SweepFolder, Json]:
    """Run the sweep up to its outcome, then measure what the outcome takes."""
    folder, state = run_events(root / "store", trials, REPORTS)
    gc.collect()
    before = _resident_bytes()
    # From here on the kernel counts the peak anew.
    Path("/proc/self/clear_refs").write_text("5")
    began = process_time()
    finish(folder, state)
    return folder, {
        "cpu_s": significant(process_time() - began),
        "before_bytes_per_trial": round(before / trials),
        "peak_bytes_per_trial": round(max(0, _peak_bytes() - before) / trials),
        "stored_bytes_per_trial": round(_size(folder, "trials-") / trials),
        "head_bytes": _size(folder, "outcome.json"),
    }


def _look(command: Sequence[str]) -> Json:
    """One process: its wall time and its time of the processor."""
    began = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    assert process.returncode == 0, f"{' '.join(command)}: exit code {process.returncode}"
    return {
        "wall_s": significant(perf_counter() - began),
        "cpu_s": significant(used.ru_utime + used.ru_stime),
    }


def _cpu_s(look: Json) -> float:
    found: float = look["cpu_s"]
    return found


def _size(folder: SweepFolder, begin: str) -> int:
    """The bytes of the sweep's objects whose names begin so."""
    infos = folder.store.list(folder.sweep_id)
    return sum(info.size_bytes for info in infos if info.key.startswith(f"{folder.sweep_id}/{begin}"))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("VmHWM"))
