"""What the listener does about marks. The database is put aside here; real marks are in `tests/airflow`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.core_api.services.public import task_instances
from airflow.listeners.listener import get_listener_manager
from airflow.utils.state import TaskInstanceState

from raysweep.outcome import Cancellation, SweepOutcome
from raysweep.runs.reading.view import RunView
from raysweep.specs.identity import sweep_id
from raysweep_airflow import marks
from raysweep_airflow.identity import TaskId
from raysweep_airflow.marks import Marks
from raysweep_airflow.page import lookup
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.plugin import RaysweepPlugin
from raysweep_airflow.page.task import TaskView

TASK = TaskId(dag_id="night", task_id="sweep", run_id="r1")
RUN = sweep_id("flights", TASK.key)


def marked(operator: str = "SweepOperator", **fields: Any) -> Any:
    """A task instance, as far as the listener looks at it."""
    return SimpleNamespace(**(TASK.to_dict() | {"operator_name": operator} | fields))


class Database:
    """In place of Airflow's: what it says of the task, one state after the other, the last one for good."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.states: list[str] = ["failed"]
        self.asked = 0
        self.troubles = 0
        self.opened = threading.Event()
        self.opened.set()

    def find(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> TaskView | None:
        assert (dag_id, run_id, task_id, map_index) == ("night", "r1", "sweep", -1)
        self.opened.wait(60)
        self.asked += 1
        if self.troubles:
            self.troubles -= 1
            raise OSError("the database does not answer")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        ids = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        return TaskView(**ids, state=state, place=self.place)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> RunView:
    view = RunView("sweep", str(tmp_path / "sweeps"), RUN)
    view.note_job(1, f"{RUN}.1", "http://head:8265")
    return view


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    job = {"run_id": RUN, "storage_path": str(tmp_path / "sweeps"), "job_id": f"{RUN}.1", "key": TASK.key}
    found = Database(Place(kind="sweep", **job))  # type: ignore[arg-type]
    monkeypatch.setattr(lookup, "find_task", found.find)
    monkeypatch.setattr(marks, "LOOK_S", 0.01)
    monkeypatch.setattr(marks, "PAUSES_S", (0.01, 0.01))
    yield found
    found.opened.set()


@pytest.fixture
def listener(database: Database) -> Iterator[Marks]:
    """Its threads have nothing to do any more when the test is over."""
    made = Marks()
    yield made
    database.opened.set()
    made._marked.join()


def until(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := check()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("state", ["failed", "success", "skipped"])
def test_a_mark_asks_the_job_to_end(run: RunView, database: Database, listener: Marks, state: str) -> None:
    database.states = [state]
    hook = getattr(listener, f"on_task_instance_{state}")
    hook(previous_state=None, task_instance=marked())
    asked = until(run.cancellation)
    assert (asked.number, asked.by) == (1, "Airflow: night/sweep/r1")
    assert asked.reason == f"its task was marked {state} in Airflow"
    assert TASK.has_ended_by_mark(asked, 1)


def test_airflows_api_server_calls_the_plugins_listener_for_a_mark(run: RunView, database: Database) -> None:
    """Its own function, which `PATCH` of a task and of a run both call: Airflow may change it."""
    manager = get_listener_manager()
    (listener,) = RaysweepPlugin.listeners
    # Where the distribution is installed, the entry point has brought it.
    if not manager.pm.is_registered(listener):
        manager.add_listener(listener)
    task_instances._emit_state_listener_hooks([marked()], TaskInstanceState.FAILED)
    assert until(run.cancellation).number == 1
    listener._marked.join()


def test_it_is_believed_once_it_is_committed(run: RunView, database: Database) -> None:
    database.states = ["deferred", "deferred", "deferred", "failed"]
    marks.end_if_over(TASK)
    assert run.cancellation() is not None
    assert database.asked == 4


@pytest.mark.parametrize("state", ["", "deferred", "running", "up_for_retry"])
def test_a_mark_that_is_not_so_any_more_ends_nothing(
    run: RunView, database: Database, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Rolled back, or cleared since."""
    monkeypatch.setattr(marks, "COMMIT_S", 0.05)
    database.states = [state]
    marks.end_if_over(TASK)
    assert database.asked >= 2
    assert run.cancellation() is None


@pytest.mark.parametrize(
    ("previous_state", "operator"),
    [
        (TaskInstanceState.RUNNING, "SweepOperator"),  # its own end, said by its worker
        (None, "BashOperator"),
        (None, "PythonOperator"),
        (None, None),
    ],
)
def test_what_is_no_mark_of_our_tasks_is_not_looked_at(
    listener: Marks, previous_state: Any, operator: Any
) -> None:
    listener.on_task_instance_failed(previous_state=previous_state, task_instance=marked(operator))
    assert listener._marked.empty()
    assert listener._threads == []


def test_a_hook_waits_for_nothing(run: RunView, database: Database, listener: Marks) -> None:
    database.opened.clear()
    for _ in range(marks.THREADS + 3):
        listener.on_task_instance_failed(previous_state=None, task_instance=marked())
    # All threads hang, and the hooks have returned.
    assert run.cancellation() is None
    assert len(listener._threads) == marks.THREADS
    database.opened.set()
    assert until(run.cancellation)


def test_too_many_marks_are_said_and_left_to_the_triggers(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(marks, "MAX_WAITING", 2)
    database.opened.clear()
    listener = Marks()
    for _ in range(marks.THREADS + 4):
        listener.on_task_instance_failed(previous_state=None, task_instance=marked())
    assert "too many others" in caplog.text
    database.opened.set()
    listener._marked.join()


def test_what_it_cannot_read_is_said_and_never_raised(
    database: Database, listener: Marks, caplog: pytest.LogCaptureFixture
) -> None:
    listener.on_task_instance_failed(previous_state=None, task_instance=object())
    assert "a mark was not understood" in caplog.text
    assert database.asked == 0


def test_what_fails_is_tried_again_and_then_said(
    run: RunView, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.troubles = 2
    marks.end_patiently(TASK)
    assert run.cancellation() is not None
    database.troubles = 3
    marks.end_patiently(TASK)
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
    assert "its mark was not handed on" in caplog.text


def test_a_thread_outlives_what_fails(run: RunView, database: Database, listener: Marks) -> None:
    database.troubles = 10 * marks.THREADS
    for _ in range(20 * marks.THREADS):
        listener.on_task_instance_failed(previous_state=None, task_instance=marked())
    assert until(run.cancellation)
    assert all(thread.is_alive() for thread in listener._threads)


def test_a_storage_that_is_another_one_here_is_left_alone(database: Database, tmp_path: Path) -> None:
    """A folder of the cluster's machines, which this one does not have."""
    marks.end_if_over(TASK)
    assert database.asked == 1
    assert not (tmp_path / "sweeps").exists()


@pytest.mark.parametrize("job_id", ["", "other.1", f"{RUN}.x", f"{RUN}.2"])
def test_a_job_that_the_storage_does_not_know_is_left_alone(
    run: RunView, database: Database, job_id: str, tmp_path: Path
) -> None:
    job = {"run_id": RUN, "storage_path": str(tmp_path / "sweeps"), "job_id": job_id}
    database.place = Place(kind="sweep", **job)  # type: ignore[arg-type]
    marks.end_if_over(TASK)
    assert run.cancellation() is None


def test_a_task_without_a_sweep_is_left_alone(run: RunView, database: Database) -> None:
    database.place = None
    marks.end_if_over(TASK)
    assert run.cancellation() is None


def test_what_has_ended_is_not_asked_to(run: RunView, database: Database) -> None:
    outcome = SweepOutcome(
        sweep_id=RUN,
        name="flights",
        status="completed",
        metric="loss",
        mode="min",
        started_at=0,
        ended_at=1,
        spec_digest="d",
    )
    assert run._sweep is not None
    run._sweep.write_outcome_if_absent(outcome)
    marks.end_if_over(TASK)
    assert run.cancellation() is None


def test_a_later_jobs_request_is_not_taken_back(run: RunView, database: Database) -> None:
    run.ask_to_cancel("later", "a person", number=3)
    marks.end_if_over(TASK)
    asked = run.cancellation()
    assert asked is not None
    assert (asked.number, asked.reason) == (3, "later")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"reason": "its task was deleted from Airflow"}, True),
        ({"number": 2}, True),
        ({"by": "raysweep cancel"}, False),
        ({"by": "Airflow: night/sweep/r2"}, False),
        ({"reason": "execution_timeout of 1:00:00 is over"}, False),
        ({"number": 0}, False),
    ],
)
def test_a_request_of_a_mark_is_known_from_others(changes: dict[str, Any], expected: bool) -> None:
    fields = {"number": 1, "by": TASK.canceller, "reason": "its task was marked failed in Airflow"}
    asked = Cancellation(at=0.0, **(fields | changes))  # type: ignore[arg-type]
    assert TASK.has_ended_by_mark(asked, 1) is expected
    assert not TASK.has_ended_by_mark(asked, 3)
    assert not TASK.has_ended_by_mark(None, 1)
