"""An error through a job's log and back: the same class, the same text."""

from __future__ import annotations

import pytest

from raysweep import errors
from raysweep.jobs.errorline import PREFIX, decode_error, encode_error, find_error
from raysweep.outcome import Holder, TrainOutcome
from tests.unit.error_examples import EXAMPLES

HOLDER = Holder(host="node-7", pid=3, user="me")
WHOLE = [
    error
    for error in EXAMPLES
    if isinstance(error, errors.RaysweepError)
    and not isinstance(error, errors.SweepInterrupted | errors.SweepFailedError | errors.TrainingFailedError)
    and type(error) is not errors.RaysweepError
]


def there_and_back(error: BaseException, noise: str = "\n") -> errors.RaysweepError:
    record = find_error(f"a line of the user\n{encode_error(error)}{noise}")
    assert record is not None
    return decode_error(record, "flights-0123456789.1")


@pytest.mark.parametrize("error", WHOLE, ids=lambda error: type(error).__name__)
def test_every_error_comes_back_as_what_it_was(error: errors.RaysweepError) -> None:
    back = there_and_back(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.retryable == error.retryable


def test_an_error_with_more_problems_keeps_them() -> None:
    error = errors.SpecError("metric", "is missing", "name one")
    error.others = ("mode: is missing",)
    assert str(there_and_back(error)) == str(error)


def test_a_holder_comes_back_in_words() -> None:
    assert "node-7" in str(there_and_back(errors.SweepHeldError("flights", HOLDER)))


def test_an_interrupted_driver_is_no_interrupt_here() -> None:
    back = there_and_back(errors.SweepInterrupted("flights-0123456789", "its lease ran out"))
    assert type(back) is errors.ClusterLostError
    assert not isinstance(back, KeyboardInterrupt)
    assert back.retryable
    assert "its lease ran out" in str(back)


def test_a_failed_training_and_a_foreign_error_fail_the_job() -> None:
    outcome = TrainOutcome(run_id="r", name="r", status="failed", started_at=0, ended_at=1)
    for error in (
        errors.TrainingFailedError(outcome),
        ZeroDivisionError("division by zero"),
        KeyError(object()),
    ):
        back = there_and_back(error)
        assert type(back) is errors.JobFailedError
        assert type(error).__name__ in str(back)
        assert not back.retryable


def test_the_last_line_counts_and_noise_does_not() -> None:
    log = f"{encode_error(errors.ClusterLostError('', 'first'))}\n{PREFIX}not json\n{PREFIX}[1]\n"
    log += f"(pid=3) {encode_error(errors.SpecError('metric', 'second'))}\nTraceback\n"
    record = find_error(log)
    assert record is not None
    assert "second" in record["message"]
    assert find_error("nothing of the kind") is None


def test_a_class_of_a_later_version_keeps_its_words() -> None:
    record = {"class": "LaterError", "message": "what it said", "retryable": True}
    assert type(decode_error(record, "s.1")) is errors.ClusterLostError
    assert type(decode_error(record | {"retryable": False}, "s.1")) is errors.JobFailedError
    for name in ("RaysweepError", "one_line", "SpecError"):
        assert "what it said" in str(decode_error(record | {"class": name}, "s.1"))
