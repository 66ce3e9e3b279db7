"""The table of `decisions.py`, row by row, and that no combination is without an answer."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest

from raysweep.jobs.decisions import Decision, Newest, NewestStatus, decide

STATUSES = get_args(NewestStatus)


@pytest.mark.parametrize(
    ("status", "resume_cancelled", "do", "number"),
    [
        (None, False, "submit", 1),
        ("PENDING", False, "attach", 3),
        ("RUNNING", False, "attach", 3),
        ("RUNNING", True, "attach", 3),
        ("SUCCEEDED", False, "refuse_storage", 3),
        ("SUCCEEDED", True, "refuse_storage", 3),
        ("FAILED", False, "submit", 4),
        ("GONE", False, "submit", 4),
        ("STOPPED", False, "refuse_stopped", 3),
        ("STOPPED", True, "submit", 4),
    ],
)
def test_without_an_outcome(status: Any, resume_cancelled: bool, do: Any, number: int) -> None:
    newest = None if status is None else Newest(number=3, status=status)
    decision = decide(newest, has_outcome=False, resume_cancelled=resume_cancelled)
    assert decision == Decision(do=do, number=number)


def test_a_success_of_which_nothing_here_tells_is_run_again() -> None:
    """Its driver finds what it did there, or begins anew where the folder was removed."""
    newest = Newest(number=3, status="SUCCEEDED", is_noted=False)
    assert decide(newest, has_outcome=False) == Decision(do="submit", number=4)


@pytest.mark.parametrize(
    ("status", "resume_cancelled"), list(itertools.product([None, *STATUSES], [False, True]))
)
def test_an_outcome_is_returned_whatever_the_jobs(status: Any, resume_cancelled: bool) -> None:
    newest = None if status is None else Newest(number=3, status=status)
    decision = decide(newest, has_outcome=True, resume_cancelled=resume_cancelled)
    assert decision == Decision(do="return", number=3 if newest else 0)


@pytest.mark.parametrize("status", [None, *STATUSES])
def test_an_outcome_that_reopens_is_gone_on_from(status: Any) -> None:
    """Whatever the last job came to, the next one continues; one that runs already is not doubled."""
    newest = Newest(number=3, status=status) if status is not None else None
    decision = decide(newest, has_outcome=True, is_reopening=True)
    if status in ("PENDING", "RUNNING"):
        assert decision == Decision(do="attach", number=3)
    else:
        assert decision == Decision(do="submit", number=4 if newest else 1)
