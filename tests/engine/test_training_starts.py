"""Training workers that do not start: their start is retried, and the run loses nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import TrainingFailedError
from raysweep.raycompat import train
from raysweep.training import controller
from tests.insides import train_worker

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray_cluster"),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]


def failing(marks: Path, times: int, fault: Callable[[], None]) -> type:
    """Ray Train's worker, of which as many as `times` have a fault before they are up."""

    class FailingWorker(train_worker()):
        def __init__(self) -> None:
            try:
                mark = next(number for number in range(times) if not (marks / str(number)).exists())
                (marks / str(mark)).touch(exist_ok=False)
            except (StopIteration, FileExistsError):
                pass
            else:
                fault()
            super().__init__()

    return FailingWorker


def no_device() -> None:
    raise OSError("no device")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], Path]:
    """Lets the first workers that start have a fault; returns the folder with a file for each that had it."""

    def arrange(times: int, fault: Callable[[], None]) -> Path:
        (marks := tmp_path / "marks").mkdir()
        monkeypatch.setattr(train.LocalWorkers, "_worker_cls", failing(marks, times, fault))
        monkeypatch.setattr(controller, "START_PAUSE_S", 0.1)
        return marks

    return arrange


def make_spec(tmp_path: Path, **fields: Any) -> rs.TrainSpec:
    fields = {"failure": {"max_failures": 0}, "scaling": {"num_workers": 2}, **fields}
    return rs.TrainSpec(trainable="examples.quick:steps", storage_path=str(tmp_path / "runs"), **fields)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [no_device, killed])
def test_a_worker_that_does_not_start_once_is_no_failure(
    tmp_path: Path,
    starts: Callable[..., Path],
    fault: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    marks = starts(1, fault)
    outcome = rs.run_training(make_spec(tmp_path), key="k")
    assert outcome.status == "completed"
    assert outcome.error is None
    assert len(list(marks.iterdir())) == 1
    assert "the workers failed to start: " in caplog.text
    assert "retry 1 of 4 in 0.1 s (not counted against failure.max_failures)" in caplog.text


def test_workers_that_never_start_end_the_run_with_the_reason(
    tmp_path: Path, starts: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts(99, no_device)
    monkeypatch.setattr(controller, "START_RETRIES", 1)
    with pytest.raises(TrainingFailedError, match=r"failed to start 2 times in a row.*OSError: no device"):
        rs.run_training(make_spec(tmp_path, scaling={"num_workers": 1}), key="k")
