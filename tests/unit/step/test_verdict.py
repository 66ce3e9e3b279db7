"""What a step does with an end, and that its text says what a person needs."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from raysweep import errors
from raysweep.outcome import AttemptOutcome, ErrorInfo, SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.step import complete, details_of

TRACEBACK = """Traceback (most recent call last):
  File "/app/raysweep/trial.py", line 80, in run
    fit(config)
  File "/app/code/model.py", line 12, in fit
    raise ValueError("labels are empty")
ValueError: labels are empty
"""
ERROR = ErrorInfo(
    kind="user_error",
    type="ValueError",
    message="labels are empty",
    traceback=TRACEBACK,
    traceback_uri="s3://b/s-1/tracebacks/0.txt",
)


def sweep(status: Any, *, finished: int = 4, **fields: Any) -> SweepOutcome:
    best = TrialOutcome(trial_id="t", number=0, state="completed", score=1.0)
    plain: dict[str, Any] = {"best": best, "counts": {"completed": finished}, "why": "the reason"}
    return SweepOutcome(
        sweep_id="s-1",
        name="s",
        status=status,
        metric="m",
        mode="max",
        started_at=0,
        ended_at=1,
        uri="s3://b/s-1",
        **plain | fields,
    )


def failed_sweep() -> SweepOutcome:
    attempt = AttemptOutcome(attempt=1, started_at=0, end="failed", error=ERROR)
    trials = (
        TrialOutcome(trial_id="00000", number=0, state="completed", config={"lr": 1.0}),
        TrialOutcome(trial_id="00001", number=1, state="failed", config={"lr": 0.5}, attempts=(attempt,)),
    )
    return sweep("failed", trials=trials, error=ERROR, why="3 of 3 trials failed")


@pytest.mark.parametrize("status", ["completed", "target", "plateau", "deadline", "budget"])
def test_a_success_is_handed_on(status: Any) -> None:
    outcome = sweep(status)
    assert complete(outcome) is outcome


@pytest.mark.parametrize(
    ("outcome", "options", "expected"),
    [
        (sweep("deadline", finished=2, min_trials=3), {}, "2 finished trials are fewer than the 3 needed"),
        (sweep("budget"), {"accept_partial": False}, "accept_partial is off"),
        (sweep("deadline", best=None), {}, "no trial has a score"),
        (sweep("completed", best=None), {}, "no trial has a score"),
        (sweep("cancelled", why="by anna: wrong data"), {}, "cancelled: by anna: wrong data"),
    ],
)
def test_what_does_not_count_says_why(outcome: SweepOutcome, options: Any, expected: str) -> None:
    with pytest.raises(errors.SweepFailedError) as raised:
        complete(outcome, **options)
    assert expected in str(raised.value)
    assert "s3://b/s-1" in str(raised.value)
    assert raised.value.retryable is False
    assert raised.value.outcome is outcome


def test_a_failure_of_user_code_names_place_and_config() -> None:
    with pytest.raises(errors.SweepFailedError) as raised:
        complete(failed_sweep())
    text = str(raised.value)
    assert 'ValueError: labels are empty (model.py:12 in fit), config {"lr":0.5}' in text
    assert text.endswith("see s3://b/s-1")
    assert "\n" not in text
    details = details_of(raised.value)
    assert TRACEBACK.rstrip() in details
    assert 'config: {"lr":0.5}' in details
    assert "s3://b/s-1/tracebacks/0.txt" in details
    assert "what it printed: s3://b/s-1/logs/00001-1.log" in details
    assert "raysweep logs s3://b/s-1 --trial 1 --attempt 1" in details


def test_the_text_survives_pickling() -> None:
    with pytest.raises(errors.SweepFailedError) as raised:
        complete(failed_sweep())
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301  our own bytes


def test_a_long_text_keeps_its_end() -> None:
    error = ERROR.model_copy(update={"message": "m" * 900})
    long = failed_sweep().model_copy(update={"why": "w" * 900, "error": error})
    with pytest.raises(errors.SweepFailedError) as raised:
        complete(long)
    assert str(raised.value).endswith("see s3://b/s-1")


def test_a_training_that_failed() -> None:
    outcome = TrainOutcome(
        run_id="r-1",
        name="r",
        status="failed",
        config={"lr": 2},
        error=ERROR,
        uri="s3://b/r-1",
        started_at=0,
        ended_at=1,
    )
    with pytest.raises(errors.TrainingFailedError, match="labels are empty") as raised:
        complete(outcome)
    assert 'config {"lr":2}' in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        errors.ClusterLostError("http://x", "killed"),
        errors.SpecError("metric", "is missing"),
        errors.JobStoppedError("s.1"),
    ],
)
def test_an_error_is_raised_as_it_is(error: errors.RaysweepError) -> None:
    with pytest.raises(type(error)) as raised:
        complete(error)
    assert raised.value is error
    assert details_of(error) == ""


def test_a_refused_outcome_may_count_all_the_same() -> None:
    outcome = sweep("deadline")
    assert complete(errors.SweepFailedError(outcome)) is outcome
