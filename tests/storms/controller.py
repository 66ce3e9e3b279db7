"""One process of a controller in a storm: a fork server of its own, the stand-in cluster, `run_sweep`."""

from __future__ import annotations

import faulthandler
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import raysweep as rs
from raysweep.outcome import SweepProgress
from tests.storms import hooks
from tests.storms.cluster import StandInCluster, install
from tests.storms.processes import Process
from tests.storms.workers import fork, print_to, serve

KEY: Final = "storm"
HERE: Final = "STORM_HERE"
"""The variable that has storms run on this machine's own placement."""
THREADS_END_S: Final = 10.0
"""Within this time the sweep's threads have ended. Those of the zoo's strays are the trial's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call of `run_sweep`: `tag` names its files in `folder`.

    `happenings`: what happens to the cluster, and when, in seconds after the first trial began. `jumps`: by
    how much this process's wall clock is set, and when. `on_progress`: the name of a hook of `hooks`.
    """

    spec: Mapping[str, Any]
    folder: Path
    tag: str
    cpus: tuple[int, ...] = (2,)
    happenings: tuple[tuple[float, str, int], ...] = ()
    jump: tuple[float, float] | None = None
    on_progress: str = ""
    asks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome_path(self) -> Path:
        """Where its outcome is written."""
        return self.folder / f"outcome-{self.tag}.json"

    @property
    def end_path(self) -> Path:
        """Where it is written how the call ended."""
        return self.folder / f"end-{self.tag}.json"

    def begin(self) -> Process:
        """In a process of its own."""
        self.outcome_path.unlink(missing_ok=True)
        self.end_path.unlink(missing_ok=True)
        return Process(lambda: _drive(self))


def _drive(run: Run) -> None:
    os.chdir(run.folder)
    print_to(run.folder / f"printed-{run.tag}.txt")
    faulthandler.register(signal.SIGUSR2, all_threads=True, file=sys.stderr)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    cluster = StandInCluster(run.cpus)
    if not is_here():
        _stand_in(cluster, run)
    clock = Clock(*run.jump) if run.jump is not None else None
    before = set(threading.enumerate())
    end = _call(run, _looking(run, cluster, clock))
    end["threads"] = _threads_left(before)
    run.end_path.write_text(json.dumps(end))


def is_here() -> bool:
    """Whether workers are those of `address="here"`, and nothing is replaced; no node comes or goes then."""
    return HERE in os.environ


def _stand_in(cluster: StandInCluster, run: Run) -> None:
    ours, theirs = multiprocessing.Pipe()

    def serve_workers() -> None:
        ours.close()
        serve(theirs)

    fork(serve_workers)
    theirs.close()
    install(cluster, ours, str(run.folder))


def _call(run: Run, look: Any) -> dict[str, Any]:
    place = {"address": "here", "num_cpus": sum(run.cpus)} if is_here() else {}
    try:
        outcome = rs.run_sweep(
            rs.SweepSpec(**run.spec), key=KEY, progress=False, on_progress=look, **place, **run.asks
        )
    except BaseException as error:  # noqa: BLE001  the oracle says which may come
        kinds = [each.__name__ for each in type(error).__mro__]
        print("".join(traceback.format_exception(error)), file=sys.stderr)
        return {"error": type(error).__name__, "kinds": kinds, "text": str(error)[:500]}
    run.outcome_path.write_text(outcome.to_json())
    return {"error": "", "kinds": [], "text": f"{outcome.status}: {outcome.why}"}


def _looking(run: Run, cluster: StandInCluster, clock: Clock | None) -> Any:
    """Called about twice a second on the controller's loop: nodes come and go in it."""
    line = sorted(run.happenings)
    begun: list[float] = []
    hook = hooks.ON_PROGRESS.get(run.on_progress)

    def look(progress: SweepProgress) -> None:
        if progress.counts.total and not begun:
            begun.append(time.monotonic())
            if clock is not None:
                clock.start()
        while line and begun and time.monotonic() - begun[0] >= line[0][0]:
            _, what, argument = line.pop(0)
            {"kill": cluster.kill, "add": cluster.add, "drain": cluster.drain}[what](argument)
        if hook is not None:
            hook(progress)

    return look


class Clock:
    """The wall clock of this process, which jumps once: the machine's, which other processes need, stays."""

    def __init__(self, after_s: float, by_s: float) -> None:
        self._after_s, self._by_s = after_s, by_s
        self._jumps_at = float("inf")
        self._real = time.time
        time.time = self._read

    def start(self) -> None:
        """The first trial runs."""
        self._jumps_at = time.monotonic() + self._after_s

    def _read(self) -> float:
        return self._real() + (self._by_s if time.monotonic() >= self._jumps_at else 0.0)


def _threads_left(before: set[threading.Thread]) -> list[str]:
    end = time.monotonic() + THREADS_END_S
    while True:
        left = [each for each in threading.enumerate() if each not in before and each.name != "storm-stray"]
        if not left or time.monotonic() > end:
            return [each.name for each in left]
        time.sleep(0.01)
