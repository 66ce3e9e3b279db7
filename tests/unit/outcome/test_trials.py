"""Trials held as text are the trials that were given, wherever they are read, and take little memory."""

from __future__ import annotations

import copy
import math
import sys
import tracemalloc
from typing import Any

import orjson
import pytest

from raysweep.outcome import AttemptOutcome, ErrorInfo, SweepOutcome, TrialOutcome, Trials
from raysweep.outcome.trials import rows_of

BASE = "/store/s-0"


def trial(number: int, score: float | None = 1.0, **fields: Any) -> TrialOutcome:
    given: dict[str, Any] = {"state": "completed", "config": {"x": number, "text": "a\nb,\n"}} | fields
    return TrialOutcome(trial_id=f"{number:05d}", number=number, score=score, **given)


ERROR = ErrorInfo(kind="user_error", message="line\n,\nline", traceback_uri=f"{BASE}/errors/1.txt")
FIRST = AttemptOutcome(attempt=1, started_at=1.0, ended_at=3.0)
TRIALS = (
    trial(0, checkpoint_uri=f"{BASE}/checkpoints/00000/1"),
    trial(1, math.inf, metrics={"loss": math.inf, "other": 2.0}),
    trial(2, None, state="failed", error=ERROR, attempts=(FIRST.model_copy(update={"error": ERROR}),)),
    trial(3, 2.0, violations={"ms <= 20": 3.5}, attempts=(FIRST,)),
    trial(4, 0.5, violations={"ms <= 20": None}),
)  # fmt: skip


def outcome(trials: Any, **fields: Any) -> SweepOutcome:
    given: dict[str, Any] = {"status": "completed", "mode": "max", "metric": "auc"} | fields
    return SweepOutcome(sweep_id="s-0", name="s", trials=trials, started_at=1.0, ended_at=2.0, **given)


def test_packed_trials_are_those_that_were_given() -> None:
    packed = Trials.packed(TRIALS, BASE)
    assert len(packed) == 5
    assert packed == TRIALS
    assert tuple(packed) == TRIALS
    assert packed[-1] == TRIALS[4]
    assert packed[1:4:2] == TRIALS[1:4:2]
    assert packed != TRIALS[:4]
    assert packed != (*TRIALS[:4], trial(4, 0.75))
    with pytest.raises(IndexError):
        packed[5]
    assert copy.deepcopy(packed) == packed
    assert copy.deepcopy(Trials(TRIALS)) == TRIALS


def test_no_trials() -> None:
    packed = Trials.packed((), BASE)
    assert (len(packed), tuple(packed), bytes(packed.text)) == (0, (), b"")
    assert packed == Trials() == ()
    assert list(packed.rows()) == []


def test_what_they_name_moves_with_the_sweep() -> None:
    packed = Trials.packed(TRIALS, BASE)
    text = bytes(packed.text)
    assert BASE.encode() not in text
    moved = Trials.stored(b"[" + text, "s3://b/s-0", 1, len(text) + 1)
    assert moved[0].checkpoint_uri == "s3://b/s-0/checkpoints/00000/1"
    assert moved[2].attempts[0].error is not None
    assert moved[2].attempts[0].error.traceback_uri == "s3://b/s-0/errors/1.txt"
    assert Trials.packed(moved, "s3://b/s-0") is moved
    assert bytes(Trials.packed(moved, "s3://b/s-0").text) == text
    assert Trials.packed(moved, BASE)[0].checkpoint_uri == "s3://b/s-0/checkpoints/00000/1"


def test_rows_say_what_the_trials_say() -> None:
    for row, whole in zip(Trials.packed(TRIALS, BASE).rows(), rows_of(TRIALS), strict=True):
        for name in ("trial_id", "state", "score", "ended_at", "is_feasible", "violation", "metrics"):
            assert getattr(row, name) == getattr(whole, name), name
        assert [each.took_s for each in row.attempts] == [each.took_s for each in whole.attempts]


@pytest.mark.parametrize("fields", [{}, {"mode": "min"}, {"others": {"other": "min"}}], ids=str)
def test_packed_trials_rank_as_the_trials_do(fields: dict[str, Any]) -> None:
    many = (
        *TRIALS,
        *(trial(number, number % 7 / 7, metrics={"other": number % 5}) for number in range(5, 60)),
    )
    whole, packed = outcome(many, **fields), outcome(Trials.packed(many, BASE), **fields)
    assert packed == whole
    assert packed.top(100) == whole.top(100)
    assert [each.score for each in packed.top(3)] == [each.score for each in packed.top(100)[:3]]
    assert packed.pareto == whole.pareto
    assert packed.first_failure == TRIALS[2]
    assert packed.model_dump(mode="json") == whole.model_dump(mode="json")


def test_configs_have_their_tuples() -> None:
    tuples = [[["x"], [{"tuple": [1, 2]}]]]
    packed = Trials.packed([trial(0, config={"x": [1, 2]})], BASE)
    plain = outcome((trial(0, config={"x": [1, 2]}),), tuples=tuples)
    assert outcome(packed, tuples=tuples).trials[0].config == plain.trials[0].config
    assert type(plain.trials[0].config["x"]) is tuple
    assert copy.deepcopy(outcome(packed, tuples=tuples)).trials[0].config == {"x": (1, 2)}


def test_an_outcome_whose_trials_were_replaced_is_validated_again() -> None:
    """A copy holds what it was given; a record that takes the copy validates it."""
    tuples = [[["x"], [{"tuple": [1, 2]}]]]
    copied = outcome((), tuples=tuples).model_copy(update={"trials": (trial(0, config={"x": [1, 2]}),)})
    assert SweepOutcome.model_validate(copied).trials[0].config == {"x": (1, 2)}
    assert SweepOutcome.from_json(copied.to_json()).trials[0].config == {"x": (1, 2)}


def test_a_packed_trial_takes_little_more_than_its_text() -> None:
    many = (trial(number) for number in range(2000))
    tracemalloc.start()
    packed = Trials.packed(many, BASE)
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    text = len(packed.text) / 2000
    assert held / 2000 < 1.2 * text + 50
    assert most / 2000 < 1.2 * text + 100


def test_the_json_of_an_outcome_whose_trials_are_text_is_that_of_its_trials() -> None:
    failed = ErrorInfo(kind="user_error", type="KeyError", message="x", traceback_uri="file:///s/a/logs/1")
    attempt = AttemptOutcome(attempt=1, started_at=1.0, end="failed", error=failed)
    given = [
        trial(0, checkpoint_uri="file:///s/a/checkpoints/00000/1"),
        trial(1, math.nan, metrics={"loss": math.inf, "odd": [math.nan, "NaN"]}),
        trial(2, None, error=failed, attempts=(attempt,), scale={"width": 8}),
    ]
    plain = outcome(Trials(given), tuples=[["shape", [{"tuple": [1, 2]}]]])
    held = outcome(Trials.packed(given, "file:///s/a"), tuples=[["shape", [{"tuple": [1, 2]}]]])
    assert orjson.loads(held.to_json()) == orjson.loads(orjson.dumps(plain.model_dump(mode="json")))
    assert held.to_json() == plain.to_json()
    assert SweepOutcome.from_json(held.to_json()).to_json() == held.to_json()


def test_the_json_of_an_outcome_makes_no_trial_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    held = outcome(Trials.packed([trial(number) for number in range(20)], "file:///s/a"))
    made = []
    monkeypatch.setattr(Trials, "_made", lambda self, place: made.append(place))
    assert len(orjson.loads(held.to_json())["trials"]) == 20
    assert made == []


def test_a_trial_that_is_read_copies_no_default_deeply() -> None:
    held, called = Trials.packed([trial(number) for number in range(20)], "file:///s/a"), []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        read = list(held)
    finally:
        sys.setprofile(None)
    assert len(read) == 20
    assert "deepcopy" not in called
    assert called.count("without_names") <= 2 * 20, "metrics and best_metrics; a score is read without it"
