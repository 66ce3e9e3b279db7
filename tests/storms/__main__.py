"""`make storms`: many storms, several at once; each violation with its number and how to play it again."""

from __future__ import annotations

import argparse
import gc
import json
import os
import pkgutil
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Final

import raysweep.schedulers
import raysweep.search
from tests.storms.controller import HERE, is_here
from tests.storms.processes import Process, adopt_orphans, descendants, kill_all
from tests.storms.putback import PUT_BACK, put_back
from tests.storms.storm import Result, play

STORM_LIMIT_S: Final = 400.0
PRELOADED: Final = (
    "cloudpickle",
    "numpy",
    "ray",
    "raysweep.cluster.controller",
    "raysweep.cluster.ray.gpus",
    "raysweep.cluster.run",
    "raysweep.jobs.options",
    "raysweep.run",
    "raysweep.runs.reading.history",
    "raysweep.step",
    "raysweep.storage.checkpoints.node_cache",
    "raysweep.worker.actor",
    "raysweep.worker.process.forking",
    "raysweep.worker.output.log_store_start",
    "raysweep.worker.process.rehearsal",
    "raysweep.worker.checkpoints.saver",
    "threadpoolctl",
)
NOT_PRELOADED: Final = ("raysweep.search.tune_searcher",)
"""It imports Ray Tune."""


def preload() -> None:
    """Import once what every storm needs: all its processes are forks of this one."""
    for name in PRELOADED:
        import_module(name)
    for package in (raysweep.schedulers, raysweep.search):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name not in NOT_PRELOADED:
                import_module(module.name)
    os.environ.setdefault("RAYSWEEP_LOG_BYTES", "0")
    gc.collect()
    gc.freeze()


def run_storms(
    seed: int,
    numbers: Sequence[int],
    folder: Path,
    jobs: int,
    *,
    evaluates: bool = False,
    keeps_folders: bool = False,
) -> Iterator[Result]:
    """Play storms, `jobs` at once, each in a fork; results as they come."""
    line = list(reversed(numbers))
    running: dict[int, tuple[int, Process, float]] = {}
    adopt_orphans()
    try:
        while line or running:
            while line and len(running) < jobs:
                number = line.pop()
                process = _begin(seed, number, folder, evaluates)
                running[os.pidfd_open(process.pid)] = number, process, time.monotonic()
            ready, _, _ = select.select(list(running), [], [], 1.0)
            late = [fd for fd, (_, _, begun) in running.items() if time.monotonic() - begun > STORM_LIMIT_S]
            for descriptor in {*ready, *late}:
                number, process, _ = running.pop(descriptor)
                os.close(descriptor)
                process.kill()
                process.wait(10.0)
                yield _read(number, folder, keeps_folders)
    finally:
        kill_all(list(descendants(os.getpid())))


def _begin(seed: int, number: int, folder: Path, evaluates: bool) -> Process:
    def run() -> None:
        try:
            result = play(seed, number, folder / str(number), evaluates=evaluates)
        except Exception:  # noqa: BLE001  a fault of the harness is a violation, too
            result = Result(number, "", violations=[traceback.format_exc()[-1500:]])
        (folder / f"{number}.json").write_text(json.dumps(asdict(result)))

    folder.mkdir(parents=True, exist_ok=True)
    return Process(run)


def _read(number: int, folder: Path, keeps_folder: bool) -> Result:
    path = folder / f"{number}.json"
    if not path.exists():
        return Result(number, "", violations=[f"the storm's process ended, or took {STORM_LIMIT_S:.0f} s"])
    result = Result(**json.loads(path.read_text()))
    path.unlink()
    if not (result.violations or keeps_folder):
        with suppress(OSError):
            shutil.rmtree(folder / str(number))
    return result


def show(seed: int, result: Result, is_alone: bool, elapsed_s: float, *, evaluates: bool) -> None:
    """What went wrong, and how to see it again."""
    if result.violations or is_alone:
        print(f"[{elapsed_s:.0f} s] storm {result.number}: {result.told} -> {result.ended or result.refused}")
        for each in dict.fromkeys(result.violations):
            print(f"  {each}")
        switch = " EVALUATE=1" * evaluates + " HERE=1" * is_here()
        print(f"  again: make storms SEED={seed} STORM={result.number}{switch}", flush=True)


def main() -> int:
    """Exit with 1 if something was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.storms", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storms", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--storm", type=int, help="only this one; its folder stays")
    parser.add_argument("--only", default="", help="only these: numbers with commas between them")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="how many at once")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin none after this time")
    parser.add_argument("--until-found", action="store_true", help="end with the first violation")
    parser.add_argument("--evaluate", action="store_true", help="checkpoints are evaluated apart")
    parser.add_argument("--here", action="store_true", help="on this machine's own placement")
    parser.add_argument("--put-back", choices=PUT_BACK, help="a fault that the storms have to find")
    parser.add_argument("--folder", type=Path, default=Path(".storms"))
    asked = parser.parse_args()
    if asked.here:
        os.environ[HERE] = "1"
    preload()
    if asked.put_back:
        put_back(asked.put_back)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    begun, played, cpu_s = time.monotonic(), 0, 0.0
    violated: list[int] = []
    refused = 0
    is_alone = asked.storm is not None
    numbers = [asked.storm] if is_alone else list(range(asked.first, asked.first + asked.storms))
    numbers = [int(each) for each in asked.only.split(",")] if asked.only else numbers
    for result in run_storms(
        asked.seed,
        numbers,
        asked.folder.absolute(),
        asked.jobs,
        evaluates=asked.evaluate,
        keeps_folders=is_alone,
    ):
        played, cpu_s = played + 1, cpu_s + result.cpu_s
        refused += bool(result.refused)
        if result.violations:
            violated.append(result.number)
        show(asked.seed, result, is_alone, time.monotonic() - begun, evaluates=asked.evaluate)
        minutes = (time.monotonic() - begun) / 60
        if not is_alone and played % 50 == 0:
            print(f"{played} storms in {minutes:.1f} minutes, {len(violated)} violated", flush=True)
        if minutes > asked.minutes or (asked.until_found and violated):
            break
    minutes = (time.monotonic() - begun) / 60
    print(
        f"{played} storms of seed {asked.seed} in {minutes:.1f} minutes ({played / minutes:.0f} a minute,"
        f" {cpu_s / max(1, played):.2f} s of CPU each), {refused} specs refused, {len(violated)} violated:"
        f" {sorted(violated)}"
    )
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
