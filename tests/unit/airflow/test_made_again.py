"""A DAG run that a person deletes and Airflow makes again: the same ids, another run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

import raysweep as rs
from raysweep_airflow import TrainOperator
from raysweep_airflow.tries import Record, is_of_run
from raysweep_airflow.work import Try
from tests.unit.airflow.trying import BASE, Store, Ti, Tries

MADE = [datetime(2026, 11, 28, 21, tzinfo=UTC), datetime(2026, 11, 28, 22, 30, tzinfo=UTC)]
AGAIN = f"{BASE}@20261128223000000000"


@pytest.fixture(params=["kept", "deleted"])
def tries(tmp_path: Path, request: pytest.FixtureRequest) -> Tries:
    """With the rows of the task state store, and where Airflow has deleted them between any two tries."""
    return Tries(tmp_path / "sweeps", forgets=request.param == "deleted")


def made_again(tries: Tries) -> Tries:
    """The same run, deleted and made again: Airflow keeps nothing of the first."""
    other = Tries(tries.storage, forgets=tries.forgets)
    other.began_at = MADE[1]
    return other


@pytest.mark.parametrize("on_clear", ["reuse", "restart"])
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "deadline", None])
def test_a_run_that_was_made_again_begins_anew(tries: Tries, status: Any, on_clear: Any) -> None:
    tries.began_at = MADE[0]
    tries.run()
    if status:
        tries.end(BASE, status)
    again = made_again(tries)
    first = again.run(on_clear=on_clear)
    assert (first.request.run.key, first.ended, first.resumes) == (AGAIN, None, False)
    # Its own tries find it again, and its own clears are its own.
    assert again.run(on_clear=on_clear).request.run.key == AGAIN
    outcome = again.end(AGAIN, "completed")
    assert again.run(on_clear=on_clear).ended == outcome
    again.clear()
    again.began_at = MADE[1] + timedelta(hours=3)
    cleared = again.run(on_clear=on_clear)
    expected = f"{AGAIN}#4" if on_clear == "restart" else AGAIN
    assert (cleared.request.run.key, cleared.ended) == (expected, outcome if on_clear == "reuse" else None)


def test_a_run_that_was_made_again_is_one_also_where_its_first_try_got_nowhere(tries: Tries) -> None:
    """As where its connection was not there: that try has left nothing."""
    tries.began_at = MADE[0]
    tries.run()
    tries.end(BASE, "failed")
    again = made_again(tries)
    again.number = 1
    assert again.run().request.run.key == AGAIN
    assert again.run().request.run.key == AGAIN


def test_a_restart_in_it_does_not_find_one_of_the_first_run(tries: Tries) -> None:
    tries.began_at = MADE[0]
    tries.run()
    tries.end(BASE, "failed")
    tries.clear()
    assert tries.run().request.run.key == f"{BASE}#2"
    tries.end(f"{BASE}#2", "completed")
    again = made_again(tries)
    again.run()
    again.end(AGAIN, "failed")
    again.clear()
    assert again.run().request.run.key == f"{AGAIN}#2"


def test_a_clear_of_an_ended_run_moves_its_start_and_it_is_the_same_run(tmp_path: Path) -> None:
    tries = Tries(tmp_path, forgets=True)
    tries.began_at = MADE[0]
    tries.run()
    outcome = tries.end(BASE, "completed")
    tries.clear()
    tries.began_at = MADE[1]
    assert tries.run().ended == outcome
    tries.began_at = MADE[1]
    assert tries.run().ended == outcome, "a retry of the cleared try"


def test_a_training_of_a_run_that_was_made_again_is_another_one(tries: Tries) -> None:
    spec = rs.TrainSpec(name="full", trainable="os:getcwd", storage_path=str(tries.storage))
    keys = []
    for at in MADE:
        with DAG("night", schedule=None):
            operator = TrainOperator(task_id="train", spec=spec)
        ti = Ti(1, 2)
        ti.task_id = "train"
        run = SimpleNamespace(clear_number=0, start_date=at)
        context = {"ti": ti, "task_state_store": Store(), "dag_run": run}
        keys.append(Try(operator, context).attempt(spec).request.run.key)
    assert keys == ["night/train/manual__1", "night/train/manual__1@20261128223000000000"]


@pytest.mark.parametrize(
    ("kept", "began", "clear_number", "try_number", "expected"),
    [
        ("", "", None, 1, False),
        ("", "", None, 2, True),  # nothing tells them apart
        (MADE[0], MADE[0], 0, 1, True),  # one try that ran twice
        (MADE[0], MADE[0], 0, 2, True),
        (MADE[0], MADE[1], 0, 2, False),
        (MADE[0], MADE[1], 1, 2, True),  # a clear
        (MADE[0], "", 0, 2, True),
        ("", MADE[1], 0, 1, False),
    ],
)
def test_of_which_run_a_record_is(
    kept: Any, began: Any, clear_number: int | None, try_number: int, expected: bool
) -> None:
    record = Record(max_tries=2, clear_number=0, run_began=str(kept))
    assert (
        is_of_run(record, run_began=str(began), clear_number=clear_number, try_number=try_number) is expected
    )
