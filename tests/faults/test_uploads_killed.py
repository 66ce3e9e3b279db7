"""SIGKILL at random moments while checkpoints are copied, hashed, stored and deleted.

What a trial is given back is, to the last byte, a checkpoint that it reported, never a mix, and none older
than what it was given before; everything that is referenced is there at the end.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import CheckpointCommitted, ControllerStarted
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from raysweep.verify import prune, verify_sweep
from tests.engine.conftest import Driver, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.timeout(1800)]
HERE = "tests.faults.uploading:train"
BOTH = pytest.mark.parametrize("is_ours", [True, False], ids=["new_checkpoint", "any directory"])
ONE = pytest.mark.parametrize(
    "is_ours",
    [pytest.param(True, marks=pytest.mark.slow), False],
    ids=["new_checkpoint", "any directory"],
)


def make(make_spec: Callable[..., rs.SweepSpec], isolation: str = "process", **space: object) -> rs.SweepSpec:
    space = {"kills": 0, "within_s": 0.0, "pause_s": 0.0, "steps": 0} | space
    return make_spec(
        HERE,
        space,
        num_samples=1,
        isolation=isolation,
        checkpoint={"keep_last": 2},
        failure={"max_worker_deaths": 1000, "bad_node_failures": 0, "backoff_initial_s": 0.0},
    )


def check(storage: Path, log: Path, outcome: rs.SweepOutcome, steps: int) -> None:
    said = [line.split() for line in log.read_text().splitlines()]
    assert not [line for line in said if line[0] == "MIXED"], said
    assert outcome.status == "completed"
    assert outcome.best.metrics["step"] >= steps - 1
    folder = SweepFolder(open_store(str(storage)), sweep_id("t", "k"))
    report = verify_sweep(folder)
    orphans = [found for found in report.findings if found.severity == "orphan"]
    assert not [found for found in report.findings if found.severity == "damage"], report.findings
    print(f"{len(orphans)} orphans of {sum(found.size_bytes for found in orphans) / 1e6:.1f} MB")
    prune(folder, report)
    assert not [found for found in verify_sweep(folder).findings if found.severity != "note"]


def kill_workers(
    kills: int,
    isolation: str,
    is_ours: bool,
    make_spec: Callable[..., rs.SweepSpec],
    storage: Path,
    log: Path,
) -> list[int]:
    steps = 12
    spec = make(make_spec, isolation, kills=kills, within_s=1.0, steps=steps, pause_s=0.01, is_ours=is_ours)
    outcome = rs.run_sweep(spec, key="k")
    check(storage, log, outcome, steps)
    resumed = [int(line.split()[1]) for line in log.read_text().splitlines()]
    assert len(resumed) == kills + 1
    assert resumed == sorted(resumed), "a start was given an older checkpoint than one before it"
    return resumed


@pytest.mark.usefixtures("ray_cluster")
@ONE
def test_a_worker_that_is_killed_while_it_uploads_resumes_from_a_whole_checkpoint(
    is_ours: bool, make_spec: Callable[..., rs.SweepSpec], storage: Path, log: Path
) -> None:
    kill_workers(5, "process", is_ours, make_spec, storage, log)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@BOTH
@pytest.mark.parametrize("isolation", ["process", "worker"])
def test_fifty_kills_of_the_worker(
    isolation: str, is_ours: bool, make_spec: Callable[..., rs.SweepSpec], storage: Path, log: Path
) -> None:
    resumed = kill_workers(50, isolation, is_ours, make_spec, storage, log)
    print(f"{isolation}: resumed from steps {resumed}")


def kill_controllers(
    kills: int,
    is_ours: bool,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    events: Callable[..., list[object]],
    storage: Path,
    log: Path,
) -> None:
    steps = 40 * kills
    spec = make(make_spec, steps=steps, pause_s=0.01, is_ours=is_ours)

    def begun() -> list[int]:
        return [int(line.split()[1]) for line in log.read_text().splitlines()]

    for number in range(kills):
        driver, before = drive(spec, address=address), len(events(CheckpointCommitted))
        # Every third is killed before it has stored anything.
        is_early = number % 3 == 2
        wait_for(lambda: len(begun()) > number)  # noqa: B023  called here
        wait_for(lambda: is_early or len(events(CheckpointCommitted)) > before)  # noqa: B023
        time.sleep(random.SystemRandom().uniform(0.0, 0.4))
        driver.process.send_signal(signal.SIGKILL)
        assert driver.process.wait(timeout=60) == -signal.SIGKILL
        assert begun() == sorted(begun()), "a start was given an older checkpoint than one before it"
    print(f"begun from steps {begun()}, of {len(events(CheckpointCommitted))} commits")
    log_then = len(log.read_text().splitlines())
    outcome = rs.run_sweep(spec, key="k")
    check(storage, log, outcome, steps)
    assert len(log.read_text().splitlines()) == log_then + 1
    assert outcome.generation == kills + 1 == len(events(ControllerStarted))


@pytest.mark.slow
@ONE
def test_a_controller_that_is_killed_while_checkpoints_are_stored(
    is_ours: bool,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    events: Callable[..., list[object]],
    storage: Path,
    log: Path,
) -> None:
    kill_controllers(1, is_ours, make_spec, drive, address, events, storage, log)


@pytest.mark.slow
@BOTH
def test_fifty_kills_of_the_controller(
    is_ours: bool,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    events: Callable[..., list[object]],
    storage: Path,
    log: Path,
) -> None:
    kill_controllers(50, is_ours, make_spec, drive, address, events, storage, log)
