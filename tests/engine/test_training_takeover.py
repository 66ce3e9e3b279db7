"""Calls of one training at the same time, and a newer one that takes the run over."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import (
    FencedError,
    SweepHeldError,
)
from raysweep.outcome import SweepProgress
from raysweep.runs.ownership.training_claim import claim_run, read_newest
from raysweep.runs.training import CHECKPOINT_OWNER, PROGRESS, RunFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.testing import FaultPlan
from raysweep.training import TrainProgress
from raysweep.training.checkpoint_list import SNAPSHOT
from raysweep.training.checkpoint_parts import NUMBERS
from tests.engine.trainings import (
    actors_alive,
    actors_of_earlier_tests,  # noqa: F401  a fixture for each test
    spec_maker,
)

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]


class Call(threading.Thread):
    """One `run_training` under the key `k`, in a thread; what it returned or raised."""

    def __init__(self, spec: rs.TrainSpec) -> None:
        super().__init__(daemon=True)
        self.seen: list[TrainProgress] = []
        self.result: rs.TrainOutcome | None = None
        self.error: BaseException | None = None
        self._spec = spec

    def run(self) -> None:
        try:
            self.result = rs.run_training(self._spec, key="k", on_progress=self.seen.append)
        except rs.RaysweepError as error:
            self.error = error

    def wait_for_reports(self, number: int) -> None:
        """Until it has reported so often."""
        while len(self.seen) < number:
            assert self.is_alive(), self.error
            time.sleep(0.02)


def walk(config: dict[str, Any]) -> None:
    """Report a checkpoint each `pause_s`, `steps` times, and write each step to a log."""
    found = rs.get_checkpoint()
    step = 0
    if found is not None:
        with found as folder:
            step = json.loads((folder / "step.json").read_text())
    while step < config["steps"]:
        step += 1
        time.sleep(config["pause_s"])
        with open(config["log"], "a") as log:
            log.write(f"{os.getpid()} {step}\n")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step.json").write_text(json.dumps(step))
            rs.report({"step": step}, checkpoint=folder)


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., rs.TrainSpec]:
    return spec_maker(tmp_path)


@pytest.fixture
def walking(make_spec: Callable[..., rs.TrainSpec], tmp_path: Path) -> rs.TrainSpec:
    config = {"log": str(tmp_path / "log"), "steps": 24, "pause_s": 0.25}
    return make_spec("tests.engine.test_training_takeover:walk", config=config)


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder(open_store(tmp_path / "runs"), sweep_id("t", "train k"))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("number", [pytest.param(2, marks=pytest.mark.slow), 6])
def test_of_several_calls_at_once_one_gets_the_run_where_storage_is_slow(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path, run_folder: RunFolder, number: int
) -> None:
    plan = FaultPlan(str(tmp_path / "faults"))
    for operation in ("get", "head", "list", "put"):
        plan = plan.delay_store(operation, 0.03, times=200)  # type: ignore[arg-type]
    calls = [Call(make_spec()) for _ in range(number)]
    with plan.active():
        for call in calls:
            call.start()
            time.sleep(0.01)
        for call in calls:
            call.join()
    held = [call.error for call in calls if call.error is not None]
    assert [type(error) for error in held] == [SweepHeldError] * (number - 1)
    (outcome,) = [call.result for call in calls if call.result is not None]
    assert outcome.metrics["step"] == 10
    assert not outcome.resumed
    assert run_folder.newest_attempt() == 2  # one that ran, and its end


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_superseded_run_ends_within_seconds_and_the_outcome_is_the_newer_ones(
    walking: rs.TrainSpec, run_folder: RunFolder, tmp_path: Path
) -> None:
    """Its heartbeat says that it has failed, so that it is taken for dead: both run at once for a while."""
    older, newer = Call(walking), Call(walking)
    older.start()
    older.wait_for_reports(3)
    beat = run_folder.read_progress()
    assert beat is not None
    while not newer.is_alive() and run_folder.newest_attempt() < 2:
        newer = Call(walking)
        failed = beat.model_copy(update={"status": "failed"})
        run_folder.store.put(f"{run_folder.run_id}/{PROGRESS}", failed.to_json().encode())
        newer.start()
        while newer.is_alive() and run_folder.newest_attempt() < 2:
            time.sleep(0.01)  # the older one's next beat may come in between: then it is held
    superseded_at = time.monotonic()
    older.join(20)
    took_s = time.monotonic() - superseded_at
    assert isinstance(older.error, FencedError), older.error
    assert took_s < 18
    newer.join()
    assert newer.error is None
    outcome = newer.result
    assert outcome is not None
    assert outcome.resumed
    assert outcome.metrics == {"step": 24}
    assert run_folder.read_outcome() == outcome
    beat = run_folder.read_progress()
    assert isinstance(beat, SweepProgress)
    assert (beat.generation, beat.status) == (2, "completed")
    assert read_newest(run_folder).outcome == outcome
    # The older one's worker wrote its last line before the newer one's went far.
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    by_older = [index for index, (pid, _) in enumerate(lines) if pid == lines[0][0]]
    assert by_older[-1] < len(lines) - 10, lines
    numbers = CheckpointStore(run_folder.store, run_folder.run_id).numbers(CHECKPOINT_OWNER)
    assert [number // NUMBERS for number in numbers] == [2, 2]
    assert (outcome.checkpoint_uri or "").endswith(f"/{numbers[-1]}")
    assert actors_alive() == 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_superseded_run_deletes_no_checkpoint_that_the_newer_one_goes_on_from(
    walking: rs.TrainSpec, run_folder: RunFolder
) -> None:
    """Claimed by somebody who does nothing for a while, then by a call that continues."""
    older = Call(walking)
    older.start()
    older.wait_for_reports(3)
    claim = claim_run(run_folder, read_newest(run_folder))
    assert not isinstance(claim, rs.TrainOutcome)
    claim.update(SNAPSHOT, lambda data: (data or b"") + b" ")
    left = claim.folder.get_versioned(SNAPSHOT)
    older.join(20)
    assert isinstance(older.error, FencedError), older.error
    assert run_folder.get_versioned(SNAPSHOT) == left
    assert actors_alive() == 0

    beat = run_folder.read_progress()
    assert beat is not None
    claim.replace(PROGRESS, beat.model_copy(update={"generation": 2, "status": "failed"}).to_json().encode())
    newer = Call(walking)
    newer.start()
    newer.join()
    assert newer.error is None
    assert newer.result is not None
    assert newer.result.resumed
    assert newer.result.metrics == {"step": 24}
