"""A snapshot gives back every trial as it was, whichever of its fields says something."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import orjson
import pytest
from msgspec import Raw
from msgspec.json import Encoder

from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import (
    NO_ANCESTRY,
    NO_METRICS,
    NOT_CONTINUED,
    Ancestry,
    Attempt,
    Checkpoint,
    Continued,
    Pace,
    Results,
    Turn,
)
from raysweep.core.state.trial_rows import TrialRow, entry_of, read_entry
from raysweep.core.vocabulary.failures import Failure
from raysweep.space.amounts import USUAL, Needs

LAST = {"loss": 0.5, "epoch": 3}
ENDED = Trial(
    number=7,
    state="completed",
    config={"x": 1, "nested": {"y": [1.0, None]}},
    attempt=2,
    node="n",
    attempts=(
        Attempt(attempt=1, started_at=None, ended_at=1.0, end="moved"),
        Attempt(attempt=2, started_at=2.0, ended_at=3.0, end="returned", node="n"),
    ),
    started_at=2.0,
    attempt_started_at=2.0,
    ended_at=3.0,
    results=Results(
        reports=3,
        attempt_reports=2,
        iteration=3,
        attempt_iteration=1,
        next_checkpoint=10**13,
        last=LAST,
        best=LAST,
        last_score=0.5,
        best_score=0.5,
    ),
)
CHECKPOINT = Checkpoint(number=1, iteration=1, uri="u/1", score=0.5)
TRIAL: dict[str, Any] = {
    "number": 8,
    "config": {},
    "state": "stopping",
    "attempt": 3,
    "slot": 4,
    "node": "m",
    "stop_reason": "scheduler",
    "turn": Turn(reason="pause"),
    "attempts": (),
    "is_unmade": True,
    "checkpoints": (CHECKPOINT,),
    "started_at": None,
    "attempt_started_at": 2.5,
    "ended_at": None,
    "due_at": 9.0,
    "pace": Pace(step_s=1.0),
    "needs": Needs(memory_bytes=1),
    "ancestry": Ancestry(origin=CHECKPOINT),
    "continued": Continued(max_t=9.0),
}
RESULTS: dict[str, Any] = {
    "reports": 4,
    "attempt_reports": 4,
    "iteration": 4,
    "attempt_iteration": 4,
    "overrun": 1,
    "next_checkpoint": 1,
    "saved": 1,
    "last": {"loss": 0.75, "epoch": 4},
    "best": NO_METRICS,
    "last_score": 0.75,
    "best_score": 0.25,
    "recent": ((1, 0.5),),
    "improved": (1, 0.5),
}
ATTEMPT: dict[str, Any] = {
    "attempt": 3,
    "started_at": 2.5,
    "ended_at": 3.5,
    "end": "retried",
    "node": "m",
    "kind": "user_error",
    "failure": Failure(origin="exception", type="E", message="m"),
    "config": {"x": 2},
    "donor": 1,
}


def again(trial: Trial) -> Trial:
    return read_entry(Raw(Encoder().encode(entry_of(trial))))


def is_same(one: Trial, other: Trial) -> bool:
    return orjson.dumps(one) == orjson.dumps(other)


def test_every_field_is_changed_below() -> None:
    assert {each.name for each in fields(Trial)} == TRIAL.keys() | {"results"}
    assert {each.name for each in fields(Results)} == RESULTS.keys()
    assert {each.name for each in fields(Attempt)} == ATTEMPT.keys()


CHANGED = [
    *(pytest.param(replace(ENDED, **{name: value}), id=f"trial-{name}") for name, value in TRIAL.items()),
    *(
        pytest.param(replace(ENDED, results=replace(ENDED.results, **{name: value})), id=f"results-{name}")
        for name, value in RESULTS.items()
    ),
    *(
        pytest.param(
            replace(ENDED, attempts=(ENDED.attempts[0], replace(ENDED.attempts[1], **{name: value}))),
            id=f"attempt-{name}",
        )
        for name, value in ATTEMPT.items()
    ),
]


@pytest.mark.parametrize("trial", CHANGED)
def test_a_trial_comes_back_as_it_was(trial: Trial) -> None:
    assert not is_same(trial, ENDED)
    assert is_same(again(trial), trial)


def test_an_ordinary_trial_is_a_row_and_shares_what_all_have() -> None:
    assert isinstance(entry_of(ENDED), TrialRow)
    found = again(ENDED)
    assert is_same(found, ENDED)
    assert found.needs is USUAL
    assert found.ancestry is NO_ANCESTRY
    assert found.continued is NOT_CONTINUED
    assert found.results.best is found.results.last
    assert found.attempts[1].node is found.node
    assert again(replace(ENDED, results=Results())).results.last is NO_METRICS


@pytest.mark.parametrize("text", [b"[]", b"[1,2]", b"{}", b'"text"', b"null"])
def test_what_is_no_trial_does_not_fit(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_entry(Raw(text))
