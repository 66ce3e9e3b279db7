"""Cancelling a sweep from outside: `cancel.json`, and the quick way of a process that will be killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.interrupts import Interrupts
from raysweep.cluster.run import run_connected
from raysweep.outcome import Cancellation
from raysweep.runs.folder import SweepFolder
from raysweep.specs import RunRequest
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import wait_for

pytestmark = pytest.mark.ray
MakeSpec = Callable[..., rs.SweepSpec]
Lines = Callable[[], list[list[str]]]


class Running:
    """A sweep on a thread of this process, as the driver of a job runs it."""

    def __init__(self, spec: rs.SweepSpec, job_number: int = 0) -> None:
        self.number = job_number
        self.interrupts = Interrupts()
        self.outcome: rs.SweepOutcome | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(spec,))
        self._thread.start()

    def _run(self, spec: rs.SweepSpec) -> None:
        try:
            request = RunRequest.of(spec, "k")
            self.outcome = run_connected(
                request, self.interrupts, on_progress=None, takeover=False, job_number=self.number
            )
        except BaseException as error:  # noqa: BLE001  looked at by the test
            self.error = error

    def finish(self) -> rs.SweepOutcome:
        self._thread.join(240)
        assert self.error is None, self.error
        assert self.outcome is not None
        return self.outcome


@pytest.fixture
def folder(storage: Path) -> SweepFolder:
    return SweepFolder(open_store(str(storage)), sweep_id("t", "k"))


def cancellation(reason: str = "enough") -> Cancellation:
    return Cancellation(at=time.time(), by="a test", reason=reason)


@pytest.mark.slow
def test_cancel_json_cancels_a_running_sweep_and_not_the_next_one(
    ray_cluster: object, make_spec: MakeSpec, lines: Lines, folder: SweepFolder
) -> None:
    spec = make_spec("forever", num_samples=3)
    folder.write_cancellation(cancellation("of another night"))
    first = Running(spec)
    wait_for(lambda: len(lines()) >= 1)
    time.sleep(2.5)  # more than a heartbeat: what was there before the sweep does not cancel it
    assert first.outcome is None
    folder.write_cancellation(cancellation())
    outcome = first.finish()
    assert outcome.status == "cancelled"
    assert "enough (by a test)" in outcome.why
    assert outcome.counts == {"cancelled": 3}
    assert folder.read_outcome() == outcome


def test_a_request_that_names_a_job_ends_that_job_whenever_it_starts_and_no_later_one(
    ray_cluster: object, make_spec: MakeSpec, lines: Lines, folder: SweepFolder
) -> None:
    spec = make_spec("forever", num_samples=3)
    folder.write_cancellation(cancellation("the task was marked failed").model_copy(update={"number": 1}))
    second = Running(spec, job_number=2)
    wait_for(lambda: len(lines()) >= 1)
    # Late, as of a trigger that slept: it means the first.
    folder.write_cancellation(cancellation("late").model_copy(update={"number": 1}))
    time.sleep(2.5)
    assert second.outcome is None
    folder.write_cancellation(cancellation("the second").model_copy(update={"number": 2}))
    assert "the second (by a test)" in second.finish().why


def test_a_request_that_came_before_its_job_ends_it(
    ray_cluster: object, make_spec: MakeSpec, folder: SweepFolder
) -> None:
    """As where a task was marked as failed while its job was being submitted."""
    folder.write_cancellation(cancellation("the task was marked failed").model_copy(update={"number": 1}))
    outcome = Running(make_spec("forever", num_samples=3), job_number=1).finish()
    assert (outcome.status, outcome.counts.get("completed", 0)) == ("cancelled", 0)
    assert "the task was marked failed (by a test)" in outcome.why


def test_a_cancelled_sweep_goes_on_when_asked(
    ray_cluster: object, make_spec: MakeSpec, lines: Lines, folder: SweepFolder
) -> None:
    """What had ended stays ended; what was cut continues from its checkpoint."""
    space = {"steps": 6, "pause": 0.05, "slow_trial": 1}
    spec = make_spec("steps", space, num_samples=3, max_concurrent_trials=1)
    first = Running(spec)
    wait_for(lambda: sum(line[0] == "step" for line in lines()) >= 8)
    folder.write_cancellation(cancellation())
    cancelled = first.finish()
    assert cancelled.status == "cancelled"
    assert rs.run_sweep(spec, key="k") == cancelled
    outcome = rs.run_sweep(spec, key="k", resume_cancelled=True)
    assert (outcome.status, outcome.counts) == ("completed", {"completed": 3})
    assert sum(line[0] == "start" and line[1] == "0" for line in lines()) == 1
    steps = [line[2] for line in lines() if line[0] == "step" and line[1] == "1"]
    assert len(steps) <= 7, "at most the step that was under way is done again"
    assert rs.run_sweep(spec, key="k", resume_cancelled=True) == outcome


@pytest.mark.parametrize(
    ("trainable", "isolation"),
    [
        ("forever", "worker"),
        pytest.param("stubborn", "worker", marks=pytest.mark.slow),
        pytest.param("stubborn", "process", marks=pytest.mark.slow),
    ],
)
def test_a_process_about_to_be_killed_cancels_in_time(
    trainable: str,
    isolation: str,
    ray_cluster: object,
    make_spec: MakeSpec,
    lines: Lines,
    folder: SweepFolder,
    record_property: Callable[..., None],
) -> None:
    spec = make_spec(trainable, {"stubborn": 0}, num_samples=2, isolation=isolation, stop={"grace_s": 60})
    running = Running(spec.replace(max_concurrent_trials=1))
    wait_for(lambda: len(lines()) >= 1)
    time.sleep(0.3)
    began = time.monotonic()
    running.interrupts.cancel("stopped from outside")
    wait_for(folder.read_outcome)
    took = time.monotonic() - began
    record_property("cancelled_after_s", took)
    outcome = running.finish()
    assert outcome.status == "cancelled"
    assert "stopped from outside" in outcome.why
    assert outcome.counts == {"cancelled": 2}
    assert took < 15


@pytest.mark.slow
def test_a_cancel_that_comes_before_the_controller_is_not_lost(
    ray_cluster: object, make_spec: MakeSpec, folder: SweepFolder
) -> None:
    interrupts = Interrupts()
    interrupts.cancel("at once")
    assert not interrupts.is_taken
    results: list[Any] = []
    request = RunRequest.of(make_spec("forever", num_samples=2), "k")
    thread = threading.Thread(
        target=lambda: results.append(run_connected(request, interrupts, on_progress=None, takeover=False))
    )
    thread.start()
    thread.join(30)
    assert interrupts.is_taken
    assert results[0].status == "cancelled"
