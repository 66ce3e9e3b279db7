"""What the reaper ends and leaves alone. The database is put aside here; `tests/airflow` has a real one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from raysweep.runs.reading.view import RunView
from raysweep.specs.identity import sweep_id
from raysweep_airflow import reaper as room
from raysweep_airflow.identity import TaskId
from raysweep_airflow.page import lookup
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.task import TaskView
from raysweep_airflow.reaper import Reaper

TASK = TaskId(dag_id="night", task_id="sweep", run_id="r1")
RUN = sweep_id("flights", TASK.key)


class Database:
    """In place of Airflow's: tasks that are over, by when they ended."""

    def __init__(self, storage: Path) -> None:
        self.state, self.ended, self.asked = "failed", "22:00", 0
        self.place = Place(
            kind="sweep", run_id=RUN, key=TASK.key, storage_path=str(storage), job_id=f"{RUN}.1"
        )

    def find_over(self, since: Any) -> set[tuple[TaskId, str]]:
        return {(TASK, self.ended)} if self.state in ("failed", "skipped", "success") else set()

    def find_task(self, *ids: Any) -> TaskView:
        self.asked += 1
        fields = {name: getattr(TASK, name) for name in ("dag_id", "run_id", "task_id", "map_index")}
        return TaskView(**fields, state=self.state, place=self.place)


@pytest.fixture
def run(tmp_path: Path) -> RunView:
    view = RunView("sweep", str(tmp_path / "sweeps"), RUN)
    view.note_job(1, f"{RUN}.1", "http://head:8265")
    return view


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    found = Database(tmp_path / "sweeps")
    monkeypatch.setattr(lookup, "find_over", found.find_over)
    monkeypatch.setattr(lookup, "find_task", found.find_task)
    return found


@pytest.mark.parametrize("state", ["failed", "skipped"])
def test_a_job_whose_task_is_over_is_asked_to_end_in_the_second_round(
    run: RunView, database: Database, state: str
) -> None:
    """Killed with no retry left; or skipped, as its run has met `dagrun_timeout`."""
    database.state = state
    reaper = Reaper()
    reaper.round()
    assert run.cancellation() is None, "its trigger and the listener come first"
    reaper.round()
    asked = run.cancellation()
    assert asked is not None
    assert (asked.number, asked.reason) == (1, f"its task has ended in Airflow ({state})")
    assert TASK.has_ended_by_mark(asked, 1), "a try after a clear continues"


def test_a_task_that_is_cleared_between_two_rounds_keeps_its_job(run: RunView, database: Database) -> None:
    reaper = Reaper()
    reaper.round()
    database.state = "running"
    reaper.round()
    database.state, database.ended = "failed", "22:05"
    reaper.round()
    assert run.cancellation() is None
    reaper.round()
    assert run.cancellation() is not None


def test_a_task_is_looked_at_once(run: RunView, database: Database) -> None:
    reaper = Reaper()
    for _ in range(5):
        reaper.round()
    assert database.asked == 1


def test_a_storage_that_fails_is_asked_again_and_not_for_ever(
    run: RunView, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> bool:
        raise OSError("no credentials")

    monkeypatch.setattr(room, "ask_to_end", fail)
    reaper = Reaper()
    for _ in range(20):
        reaper.round()
    assert database.asked == room.TRIES
    assert "no credentials" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "other/sweep/r1", "run_id": sweep_id("flights", "other/sweep/r1")},
        {"job_id": ""},
        {"job_id": "other.1"},
    ],
)
def test_the_job_of_another_dag_is_left_alone(
    run: RunView, database: Database, changes: dict[str, str], tmp_path: Path
) -> None:
    """Who may edit what a task keeps must not end what is not its own."""
    fields = {name: getattr(database.place, name) for name in Place.__slots__} | changes
    database.place = Place(**fields)
    other = RunView("sweep", str(tmp_path / "sweeps"), database.place.run_id)
    other.note_job(1, f"{database.place.run_id}.1", "http://head:8265")
    reaper = Reaper()
    reaper.round()
    reaper.round()
    assert other.cancellation() is None


def test_it_goes_on_after_a_round_that_fails_and_ends_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds: list[int] = []
    enough = threading.Event()

    def fail(self: Reaper) -> None:
        rounds.append(1)
        if len(rounds) == 3:
            enough.set()
        raise OSError("the database is away")

    monkeypatch.setattr(Reaper, "round", fail)
    with room.reaping(0.01):
        assert enough.wait(30)
    threads = [each for each in threading.enumerate() if each.name == "raysweep-reaper"]
    for each in threads:
        each.join(10)
    assert not any(each.is_alive() for each in threads)
