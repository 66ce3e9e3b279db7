"""A call of raysweep belongs to the attempt whose code started the thread, task or work that makes it."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep import RaysweepError, TrialStopped
from tests.unit.worker.pairs import Worker

Start = Callable[[Callable[[], None]], None]
WAIT_S = 20.0


class Stage:
    """Where a trial's leftover waits until the next trial runs, and that one for it."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.loop = asyncio.new_event_loop()
        self.looping = threading.Thread(target=self.loop.run_forever)
        self.looping.start()
        self.next_runs = threading.Event()
        self.is_over = threading.Event()
        self.raised: list[BaseException] = []

    def late(self, call: Callable[[], Any]) -> Callable[[], None]:
        """The call, once the next trial runs; what it raised is kept."""

        def run() -> None:
            assert self.next_runs.wait(WAIT_S)
            try:
                call()
            except BaseException as error:  # noqa: BLE001  what it is, the test asks
                self.raised.append(error)
            finally:
                self.is_over.set()

        return run

    def plain(self, config: dict[str, Any]) -> None:
        """The next trial: reports once before, once after the leftover has called."""
        rs.report({"loss": 1.0})
        self.next_runs.set()
        assert self.is_over.wait(WAIT_S)
        rs.report({"loss": 2.0})


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.pool.shutdown()
    stage.loop.call_soon_threadsafe(stage.loop.stop)
    stage.looping.join()
    # A task that waits for a refused call has not seen its end.
    if tasks := asyncio.all_tasks(stage.loop):
        stage.loop.run_until_complete(asyncio.wait(tasks))
    stage.loop.close()


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path / "storage")


def by_thread(stage: Stage, call: Callable[[], None]) -> None:
    threading.Thread(target=call, daemon=True).start()


def by_raw_thread(stage: Stage, call: Callable[[], None]) -> None:
    _thread.start_new_thread(call, ())


def by_timer(stage: Stage, call: Callable[[], None]) -> None:
    """One that starts another, as those do that tick."""
    threading.Timer(0.01, lambda: threading.Timer(0.01, call).start()).start()


def by_thread_of_a_stray_one(stage: Stage, call: Callable[[], None]) -> None:
    """It is started while the next trial runs."""

    def start() -> None:
        assert stage.next_runs.wait(WAIT_S)
        threading.Thread(target=call, daemon=True).start()

    threading.Thread(target=start, daemon=True).start()


def by_pool(stage: Stage, call: Callable[[], None]) -> None:
    stage.pool.submit(call)


def by_copied_context(stage: Stage, call: Callable[[], None]) -> None:
    """On a thread that no trial has started, as a thread of the user's module."""
    OLD.put(contextvars.copy_context().run, call)


def by_task(stage: Stage, call: Callable[[], None]) -> None:
    """On a loop that runs on a thread which no trial has started."""

    async def wait() -> None:
        await asyncio.to_thread(call)

    asyncio.run_coroutine_threadsafe(wait(), stage.loop)


class Old:
    """A thread that was there before all trials, and does what it is handed."""

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., Any], Any]] = []
        self._has_call = threading.Semaphore(0)
        threading.Thread(target=self._run, name="old", daemon=True).start()

    def put(self, call: Callable[..., Any], *args: Any) -> None:
        self._calls.append((call, args))
        self._has_call.release()

    def _run(self) -> None:
        while self._has_call.acquire():
            call, args = self._calls.pop(0)
            call(*args)


OLD = Old()
WAYS = [
    by_thread,
    by_raw_thread,
    by_timer,
    by_thread_of_a_stray_one,
    by_pool,
    by_copied_context,
    by_task,
]


@pytest.mark.parametrize("start", WAYS)
def test_what_outlives_its_trial_is_refused_and_counted(
    start: Callable[[Stage, Callable[[], None]], None], stage: Stage, worker: Worker, tmp_path: Path
) -> None:
    folder = tmp_path / "late"
    folder.mkdir()

    def misbehaves(config: dict[str, Any]) -> None:
        rs.report({"loss": 10.0})
        start(stage, stage.late(lambda: rs.report({"loss": -1.0}, checkpoint=folder)))

    worker.run(misbehaves, stage.plain)
    assert (worker.losses(0), worker.losses(1)) == ([10.0], [1.0, 2.0])
    assert worker.saved(1, tmp_path) == []
    (refused,) = stage.raised
    assert isinstance(refused, TrialStopped)
    assert "the trial whose thread or task called it has ended" in str(refused)
    assert [(note.trial, note.count) for note in worker.notes(0)] == [(0, 1)]
    assert not worker.notes(1)


@pytest.mark.parametrize("call", [rs.get_checkpoint, rs.new_checkpoint, rs.get_context, rs.should_checkpoint])
def test_the_other_calls_are_refused_as_well(call: Callable[[], Any], stage: Stage, worker: Worker) -> None:
    worker.run(lambda config: by_thread(stage, stage.late(call)), stage.plain)
    assert isinstance(stage.raised[0], TrialStopped)
    assert [note.count for note in worker.notes(0)] == [1]


def test_a_loop_of_refused_calls_is_counted_and_does_not_fill_the_link(stage: Stage, worker: Worker) -> None:
    def many() -> None:
        for _ in range(100):
            with pytest.raises(TrialStopped):
                rs.report({"loss": -1.0})

    worker.run(lambda config: by_thread(stage, stage.late(many)), stage.plain)
    counts = [note.count for note in worker.notes(0)]
    assert counts == [1, 2, 4, 8, 16, 32, 64, 100]


@pytest.mark.parametrize("start", WAYS)
def test_while_their_trial_runs_they_report_for_it(
    start: Callable[[Stage, Callable[[], None]], None], stage: Stage, worker: Worker
) -> None:
    stage.next_runs.set()

    def reports_elsewhere(config: dict[str, Any]) -> None:
        start(stage, stage.late(lambda: rs.report({"loss": 3.0})))
        assert stage.is_over.wait(WAIT_S)

    worker.run(lambda config: None, reports_elsewhere)
    assert worker.losses(1) == [3.0]
    assert not stage.raised


def test_a_pool_that_an_earlier_trial_has_started_serves_the_next(stage: Stage, worker: Worker) -> None:
    def train(config: dict[str, Any]) -> None:
        number = rs.get_context().number
        done: Future[None] = stage.pool.submit(rs.report, {"loss": float(number)})
        done.result()

    worker.run(train, train, train)
    assert [worker.losses(trial) for trial in range(3)] == [[0.0], [1.0], [2.0]]


def test_a_checkpoint_folder_that_a_stray_thread_holds_is_not_taken(
    stage: Stage, worker: Worker, tmp_path: Path
) -> None:
    entered = threading.Event()

    def holds() -> None:
        with rs.new_checkpoint() as folder:
            (folder / "who").write_text("0")
            entered.set()
            assert stage.next_runs.wait(WAIT_S)
            stage.late(lambda: rs.report({"loss": -1.0}, checkpoint=folder))()

    def misbehaves(config: dict[str, Any]) -> None:
        by_thread(stage, holds)
        assert entered.wait(WAIT_S)

    worker.run(misbehaves, stage.plain)
    assert (worker.saved(0, tmp_path), worker.saved(1, tmp_path)) == ([], [])
    assert isinstance(stage.raised[0], TrialStopped)


def test_a_thread_that_no_trial_has_started_is_told_how_to_belong_to_one(
    stage: Stage, worker: Worker
) -> None:
    def train(config: dict[str, Any]) -> None:
        OLD.put(stage.late(lambda: rs.report({"loss": 1.0})))
        stage.plain(config)

    worker.run(train)
    assert worker.losses(0) == [1.0, 2.0]
    assert isinstance(stage.raised[0], RaysweepError)
    assert "thread 'old' belongs to no trial" in str(stage.raised[0])


def test_a_call_between_two_trials_is_counted_too(stage: Stage, worker: Worker) -> None:
    worker.run(lambda config: by_thread(stage, stage.late(lambda: rs.report({"loss": 1.0}))))
    stage.next_runs.set()
    assert stage.is_over.wait(WAIT_S)
    assert isinstance(stage.raised[0], TrialStopped)
    assert [note.count for note in worker.notes(0)] == [1]


def test_a_trial_that_waits_for_work_of_an_earlier_one_fails(stage: Stage, worker: Worker) -> None:
    """It was not told to stop, and does not count as stopped."""
    kept: list[Future[None]] = []

    def late() -> None:
        assert stage.next_runs.wait(WAIT_S)
        rs.report({"loss": 1.0})

    def waits(config: dict[str, Any]) -> None:
        stage.next_runs.set()
        kept[0].result()

    worker.run(lambda config: kept.append(stage.pool.submit(late)), waits)
    assert [type(end).__name__ for end in worker.ends] == ["TrialReturned", "TrialFailed"]


def test_a_process_that_a_stray_thread_forks_reports_for_no_trial(stage: Stage, worker: Worker) -> None:
    ours, theirs = os.pipe()

    def fork() -> None:
        if os.fork() == 0:
            try:
                rs.report({"loss": -1.0})
                os.write(theirs, b"taken")
            except BaseException as error:  # noqa: BLE001  as above
                os.write(theirs, type(error).__name__.encode())
            finally:
                os._exit(0)
        os.wait()

    worker.run(lambda config: by_thread(stage, stage.late(fork)), stage.plain)
    assert os.read(ours, 100) == b"RaysweepError"
    assert worker.losses(1) == [1.0, 2.0]
    os.close(ours)
    os.close(theirs)


def test_an_asyncio_trial_reports_from_its_tasks(worker: Worker) -> None:
    async def step(loss: float) -> None:
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, rs.report, {"loss": loss})

    async def both() -> None:
        await asyncio.gather(step(1.0), step(2.0))

    worker.run(lambda config: asyncio.run(both()))
    assert sorted(worker.losses(0)) == [1.0, 2.0]
