"""What a try does about what earlier ones left, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.outcome import SweepOutcome, TrainOutcome, TrialOutcome
from raysweep_airflow.operators import GateOperator
from raysweep_airflow.tries import Record, decide, is_cleared

SPEC = {
    "name": "n",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "mode": "min",
}


def sweep(status: Any, *, finished: int = 4) -> SweepOutcome:
    return SweepOutcome(
        sweep_id="s",
        name="s",
        status=status,
        metric="m",
        mode="max",
        started_at=0,
        ended_at=1,
        counts={"completed": finished},
        best=TrialOutcome(trial_id="t", number=0, state="completed", score=1.0) if finished else None,
    )


TRAINED = TrainOutcome(run_id="r", name="r", status="completed", started_at=0, ended_at=1)


@pytest.mark.parametrize(
    ("ended", "on_clear", "expected"),
    [
        (None, "reuse", "go"),
        (None, "restart", "go"),
        (sweep("completed"), "reuse", "reuse"),
        (sweep("completed"), "resume", "resume"),
        (sweep("completed"), "restart", "restart"),
        (sweep("deadline"), "reuse", "reuse"),
        (sweep("deadline"), "resume", "resume"),
        (sweep("deadline", finished=0), "reuse", "resume"),
        (sweep("deadline", finished=0), "restart", "restart"),
        (sweep("cancelled"), "reuse", "resume"),
        (sweep("cancelled"), "resume", "resume"),
        (sweep("cancelled"), "restart", "restart"),
        (sweep("failed"), "reuse", "restart"),
        (sweep("failed"), "resume", "restart"),
        (sweep("completed"), "retry", "retry"),
        (sweep("failed"), "retry", "retry"),
        (sweep("cancelled"), "retry", "resume"),
        (sweep("deadline"), "retry", "reuse"),
        (sweep("deadline", finished=0), "retry", "resume"),
        (None, "retry", "go"),
        (TRAINED, "retry", "reuse"),
        (TRAINED, "reuse", "reuse"),
        (TRAINED, "restart", "restart"),
    ],
)
def test_after_a_clear(ended: Any, on_clear: Any, expected: str) -> None:
    assert decide(ended, is_cleared=True, on_clear=on_clear, accept_partial=True) == expected


@pytest.mark.parametrize("on_clear", ["reuse", "resume", "retry", "restart"])
@pytest.mark.parametrize("status", ["completed", "deadline", "cancelled", "failed"])
def test_a_retry_does_nothing_again(status: str, on_clear: Any) -> None:
    assert decide(sweep(status), is_cleared=False, on_clear=on_clear, accept_partial=True) == "reuse"
    assert decide(None, is_cleared=False, on_clear=on_clear, accept_partial=True) == "go"


def test_a_partial_result_that_does_not_count_goes_on() -> None:
    done = decide(sweep("deadline"), is_cleared=True, on_clear="reuse", accept_partial=False)
    assert done == "resume"


def test_a_gate_that_was_cut_short_goes_on_when_it_is_cleared() -> None:
    """Its verdict would be final: one that rests on a part of the runs is none."""
    gate = GateOperator(task_id="gate", spec=SPEC, outcome={"uri": "/sweeps/n-1"})
    given = {"on_clear": gate.on_clear, "accept_partial": gate.accept_partial}
    assert decide(sweep("deadline"), is_cleared=True, **given) == "resume"
    assert decide(sweep("completed"), is_cleared=True, **given) == "reuse"


def test_a_record_survives_the_store_and_later_versions() -> None:
    record = Record(max_tries=3, suffix="#2", scheduled_at="2026-11-21T22:00:00+00:00", ends_at=None)
    assert Record.from_dict(record.to_dict() | {"later": 1}) == record


def test_a_record_of_an_earlier_version_is_read() -> None:
    old = {"max_tries": 3, "suffix": "#2", "scheduled_at": "2026-11-21T22:00:00+00:00", "ends_at": None}
    record = Record.from_dict(old)
    assert record is not None
    assert (record.clear_number, record.due) == (None, None)
    numbers = {"clear_number": 4, "try_number": 3, "retries": 1}
    assert not is_cleared(record, max_tries=3, **numbers), "what was not kept proves nothing"
    assert is_cleared(record, max_tries=4, **numbers)


@pytest.mark.parametrize("other", [None, "text", {}, {"max_tries": "3"}, 7])
def test_what_is_no_record_counts_as_none(other: Any) -> None:
    assert Record.from_dict(other) is None


GOOD = {"max_tries": 2, "suffix": "#3", "scheduled_at": "2026-11-21T22:00:00+00:00", "due": "resume"}


def test_what_a_try_left_is_read_back() -> None:
    found = Record.from_dict(GOOD)
    assert found is not None
    assert Record.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    "changes",
    [
        {"suffix": "/../../other"},
        {"suffix": "#3\n"},
        {"suffix": ["#3"]},
        {"suffix": "/gate-0123456789ab"},
        {"scheduled_at": "yesterday"},
        {"scheduled_at": "2026-11-21T22:00:00"},
        {"scheduled_at": 7},
        {"ends_at": ""},
        {"due": "delete"},
        {"max_tries": "2"},
    ],
)
def test_a_suffix_that_people_wrote_names_no_other_run(changes: dict[str, Any]) -> None:
    """Airflow's API lets people edit the task state store; the key of a run is made with it."""
    assert Record.from_dict(GOOD | changes) is None


@pytest.mark.parametrize(
    ("try_number", "max_tries", "clear_number", "expected"),
    [
        (1, 2, 0, False),
        (2, 2, 0, False),  # a retry; the first try has left nothing
        (3, 2, 1, False),  # a retry, while another task of the run was cleared
        (2, 3, 1, True),
        (4, 5, 2, True),
        (2, 3, None, False),
    ],
)
def test_a_clear_is_known_where_nothing_is_kept_of_earlier_tries(
    try_number: int, max_tries: int, clear_number: int | None, expected: bool
) -> None:
    found = is_cleared(None, max_tries=max_tries, clear_number=clear_number, try_number=try_number, retries=2)
    assert found is expected
