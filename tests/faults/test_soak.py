"""2,000 short trials, with workers and controllers killed at random: the sweep ends, in flat memory."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import linear_regression
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import TrialReturned, TrialStarted
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import Driver

TRIALS = 2_000
CONTROLLER_KILLS = 6
WORKER_PAUSE_S = 4.0
"""The mean time between two killed workers."""
MAX_SLOPE_BYTES = 8_192
"""What the controller may keep of each trial: its config, metrics and attempts are a few thousand bytes."""


@dataclass
class Soak:
    """The person with the hammer: kills by a seeded plan, and samples the controller's memory."""

    drive: Callable[[], Driver]
    lines: Callable[[], list[list[str]]]
    folder: SweepFolder
    random: Random
    worker_kills: int = 0
    controller_kills: int = 0
    ended_then: list[tuple[int, set[int]]] = field(default_factory=list)
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    """(controller, trials that have ended, resident bytes)."""

    def run(self, ended: Callable[[], set[int]]) -> Driver:
        driver = self.drive()
        next_worker_at = time.monotonic() + 5
        # Controllers are killed at seeded numbers of ended trials, so the last one has a long life.
        due = sorted(self.random.sample(range(100, TRIALS * 6 // 10, 50), CONTROLLER_KILLS))
        while self.folder.read_outcome() is None:
            assert driver.process.poll() is None, driver.process.communicate()
            time.sleep(0.2)
            done = self._sample(driver)
            if due and done >= due[0]:
                due.pop(0)
                os.kill(driver.pid, signal.SIGKILL)
                driver.process.wait()
                self.controller_kills += 1
                self.ended_then.append((len(self.lines()), ended()))
                driver = self.drive()
            elif time.monotonic() > next_worker_at:
                next_worker_at = time.monotonic() + self.random.expovariate(1 / WORKER_PAUSE_S)
                self._kill_worker()
        return driver

    def _kill_worker(self) -> None:
        pids = [int(line[3]) for line in self.lines()[-20:] if line[0] == "start"]
        for pid in self.random.sample(pids, len(pids)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.worker_kills += 1
                return

    def _sample(self, driver: Driver) -> int:
        progress = self.folder.read_progress()
        if progress is None:
            return 0
        done = sum(progress.counts.get(state, 0) for state in ("completed", "failed", "stopped"))
        with suppress(OSError, ValueError):
            pages = int(Path(f"/proc/{driver.pid}/statm").read_text().split()[1])
            if progress.holder.pid == driver.pid:
                self.samples.append((driver.pid, done, pages * os.sysconf("SC_PAGE_SIZE")))
        return done


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_two_thousand_trials_under_random_kills(
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    storage: Path,
    events: Callable[..., list[Any]],
    lines: Callable[[], list[list[str]]],
) -> None:
    seed = int(os.environ.get("RAYSWEEP_SEED", "20261121"))
    spec = make_spec(
        "soaked",
        {"pause": 0.01},
        num_samples=TRIALS,
        isolation="worker",
        # A killed worker's death may be blamed on any trial whose last words died with it.
        failure={"max_worker_deaths": 50, "backoff_initial_s": 0.01},
    )
    folder = SweepFolder(open_store(str(storage)), sweep_id("t", "k"))
    soak = Soak(lambda: drive(spec, address=address), lines, folder, Random(seed))
    began = time.monotonic()
    driver = soak.run(lambda: {event.trial for event in events(TrialReturned)})
    # Ray tells the driver of each killed worker, on stdout too: the outcome is read where it is stored.
    said = driver.process.communicate(timeout=240)
    assert driver.process.returncode == 0, said
    outcome = folder.read_outcome()
    assert outcome is not None
    took_s = time.monotonic() - began

    last = soak.samples[-1][0]
    life = [(done, rss) for pid, done, rss in soak.samples if pid == last]
    # With the last trial's end the outcome is made, which takes memory of its own for a moment.
    warm = [(done, rss) for done, rss in life if life[0][0] + 100 <= done < TRIALS]
    slope, _ = linear_regression(*zip(*warm, strict=True))
    print(
        f"seed {seed}: {len(outcome)} trials in {took_s:.0f} s, {soak.controller_kills} controllers and"
        f" {soak.worker_kills} workers killed; {len(lines())} starts; the last controller ended"
        f" {life[-1][0] - life[0][0]} trials, {life[0][1] >> 20} to {life[-1][1] >> 20} MiB,"
        f" {slope:.0f} bytes a trial"
    )
    assert outcome.counts == {"completed": TRIALS}
    assert soak.controller_kills == CONTROLLER_KILLS
    assert soak.worker_kills >= 5
    for count, ended in soak.ended_then:
        again = {int(line[1]) for line in lines()[count:] if line[0] == "start"} & ended
        assert not again, f"{len(again)} trials had ended and ran again"
    assert set(Counter((e.trial, e.attempt) for e in events(TrialStarted)).values()) == {1}
    assert warm[-1][0] - warm[0][0] >= 400, "the last controller must live long enough to tell"
    assert slope < MAX_SLOPE_BYTES
