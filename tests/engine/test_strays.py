"""Nothing that a trial has started lives after the trial, however it ends, in whatever session it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.logs import list_logs, read_log
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import Driver, wait_for
from tests.engine.leaves import is_alive, pids

pytestmark = pytest.mark.ray
HERE = "tests.engine.leaves"
Run = Callable[..., rs.SweepOutcome]
ISOLATIONS = ["process", "worker"]


def none_left(log: Path, count: int) -> None:
    found = pids(str(log))
    assert len(found) == count
    wait_for(lambda: not any(map(is_alive, found)), 20)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_next_trial_begins_without_the_processes_of_the_one_before(
    isolation: str, run: Run, log: Path, storage: Path
) -> None:
    outcome = run(f"{HERE}:leaves", isolation=isolation, num_samples=3, max_concurrent_trials=1)
    assert [trial.metrics["before"] for trial in outcome.trials] == [0, 0, 0]
    folder = SweepFolder(open_store(str(storage)), sweep_id("t", "k"))
    texts = [str(read_log(folder, kept)) for kept in list_logs(folder)]
    assert len(texts) == 3
    assert all("[raysweep: ended 2 processes that the trial had left running: " in text for text in texts)
    none_left(log, 6)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(
    "end",
    [
        "kills its worker",
        pytest.param("waits", marks=pytest.mark.slow),
        pytest.param("kills itself", marks=pytest.mark.slow),
    ],
)
def test_however_a_trial_ends_its_processes_end(end: str, isolation: str, run: Run, log: Path) -> None:
    limits: dict[str, Any] = {
        "failure": {"max_worker_deaths": 0},
        "stop": {"trial_time_s": 3, "grace_s": 0.2},
    }
    run(f"{HERE}:leaves", {"end": end}, isolation=isolation, num_samples=1, **limits)
    none_left(log, 2)


def test_a_pool_that_the_module_keeps_serves_the_next_trial(run: Run) -> None:
    outcome = run(f"{HERE}:pooled", isolation="worker", num_samples=3, max_concurrent_trials=1)
    assert outcome.counts == {"completed": 3}
    assert len({trial.metrics["pooled_by"] for trial in outcome.trials}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["process", "worker"])
def test_the_workers_of_torchrun_end_with_the_trial(isolation: str, run: Run, log: Path) -> None:
    outcome = run(f"{HERE}:by_torchrun", isolation=isolation, num_samples=1, failure={"max_failures": 0})
    assert outcome.trials[0].error.message == "up"
    none_left(log, 2)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_they_end_with_a_controller_that_is_killed(
    isolation: str,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    log: Path,
) -> None:
    spec = make_spec(f"{HERE}:leaves", {"end": "waits"}, isolation=isolation, num_samples=1)
    driver = drive(spec, address=address)
    wait_for(lambda: len(pids(str(log))) == 2)
    os.kill(driver.pid, signal.SIGKILL)
    none_left(log, 2)
