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
from raysweep.errors import FencedError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.training import CHECKPOINT_OWNER, RunFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.testing import FaultPlan
from raysweep.training import TrainProgress
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
def test_of_several_calls_at_once_one_trains_and_the_others_follow(
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
    assert [call.error for call in calls] == [None] * number
    outcomes = [call.result for call in calls]
    assert all(each == outcomes[0] for each in outcomes)
    assert outcomes[0] is not None
    assert outcomes[0].metrics["step"] == 10
    assert not outcomes[0].resumed
    assert generation_of(SweepFolder(run_folder.store, run_folder.run_id)) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_superseded_run_ends_within_seconds_and_the_outcome_is_the_newer_ones(
    walking: rs.TrainSpec, run_folder: RunFolder, tmp_path: Path
) -> None:
    """Its heartbeat says that it has left, so that it is taken for dead: both run at once for a while."""
    swept = SweepFolder(run_folder.store, run_folder.run_id)
    older, newer = Call(walking), Call(walking)
    older.start()
    older.wait_for_reports(3)
    beat = swept.read_progress()
    assert beat is not None
    newer.start()
    while generation_of(swept) < 2:
        swept.write_progress(beat.model_copy(update={"has_left": True}))
        time.sleep(0.01)  # the older one's next beat may come in between: then it is followed
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
    # The older one's worker wrote its last line before the newer one's went far.
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    by_older = [index for index, (pid, _) in enumerate(lines) if pid == lines[0][0]]
    assert by_older[-1] < len(lines) - 10, lines
    numbers = CheckpointStore(run_folder.store, run_folder.run_id).numbers(CHECKPOINT_OWNER)
    assert len(numbers) == 2
    assert (outcome.checkpoint_uri or "").endswith(f"/{numbers[-1]}")
    assert actors_alive() == 0


def generation_of(folder: SweepFolder) -> int:
    """The newest claim."""
    journal = folder.journal()
    for _ in journal.read():
        pass
    return journal.generation
