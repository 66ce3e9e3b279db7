"""Which failures of a training are retried, by which number, and how soon."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray.train")

from ray.exceptions import RayActorError
from ray.train.v2.api.exceptions import WorkerGroupError

from raysweep.raycompat import train
from raysweep.specs import TrainSpec
from raysweep.training.controller import START_RETRIES, Retries
from raysweep.training.progress import Watch


def raised() -> BaseException:
    error = train.UserExceptionWithTraceback(ValueError("no"), traceback_str="ValueError: no")
    return WorkerGroupError("a worker raised", {0: error})


def died(beside: bool = False) -> BaseException:
    death = train.WorkerHealthCheckFailedError("gone", RayActorError())
    failures: dict[int, Any] = {1: death}
    if beside:
        failures[0] = train.UserExceptionWithTraceback(ValueError("no"), traceback_str="ValueError: no")
    return WorkerGroupError("a worker died", failures)


def not_started() -> BaseException:
    error = train.WorkerGroupStartupFailedError("One of the worker actors failed to initialize due to error:")
    error.__cause__ = RayActorError(error_msg="The actor died\n\tip: 1.2.3.4\nits node has died")
    return error


def retries(**fields: Any) -> tuple[Retries, list[float]]:
    spec = TrainSpec(trainable="a.b:c", **fields)
    made, pauses = Retries(spec, Watch(run_id="r")), list[float]()
    made.pause = pauses.append
    return made, pauses


def test_deaths_count_as_failures_unless_they_have_a_number() -> None:
    made, _ = retries(failure={"max_failures": 1})
    assert [made.is_retried(died()), made.is_retried(raised())] == [True, False]
    made, _ = retries(failure={"max_failures": 1, "max_worker_deaths": 2})
    assert [made.is_retried(error) for error in (died(), raised(), died(), died())] == [
        True,
        True,
        True,
        False,
    ]
    made, _ = retries(failure={"max_failures": 1, "max_worker_deaths": 0})
    assert [made.is_retried(error) for error in (raised(), died())] == [True, False]


def test_a_worker_that_died_beside_one_that_raised_died_of_it() -> None:
    made, _ = retries(failure={"max_failures": 0, "max_worker_deaths": 5})
    assert not made.is_retried(died(beside=True))


def test_pauses_double_up_to_the_longest() -> None:
    failure = {"max_worker_deaths": 9, "backoff_initial_s": 2.0, "backoff_max_s": 7.0}
    made, pauses = retries(failure=failure)
    assert all(made.is_retried(died()) for _ in range(4))
    assert pauses == [2.0, 4.0, 7.0, 7.0]


def test_no_pause_by_default() -> None:
    made, pauses = retries(failure={"max_failures": 3})
    assert made.is_retried(raised())
    assert pauses == [0.0]


def test_nodes_that_are_taken_away_have_no_limit_but_one_that_is_given() -> None:
    made, pauses = retries(failure={"max_failures": 0})
    assert all(made.is_moved() for _ in range(50))
    assert not pauses
    made, _ = retries(failure={"max_preemptions": 1})
    assert [made.is_moved(), made.is_moved()] == [True, False]
    error = made._watch.error
    assert error is not None
    assert error.kind == "preempted"
    assert "failure.max_preemptions (1)" in error.message


def test_a_start_that_fails_counts_neither_as_a_failure_nor_as_a_death(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, pauses = retries(failure={"max_failures": 0, "max_worker_deaths": 0})
    assert made.is_retried(not_started())
    assert pauses == [1.0]
    assert made._watch.error is None
    assert "the workers failed to start: its node has died; retry 1 of 4 in 1 s" in caplog.text
    assert not made.is_retried(raised())


def test_starts_that_fail_in_a_row_are_limited() -> None:
    made, pauses = retries(failure={"max_failures": 9})
    assert [made.is_retried(not_started()) for _ in range(START_RETRIES + 1)] == [True] * 4 + [False]
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    error = made._watch.error
    assert error is not None
    assert error.type == "RayActorError"
    assert error.message == "the workers failed to start 5 times in a row; the last time: its node has died"


def test_a_start_that_succeeds_ends_the_row() -> None:
    made, pauses = retries(failure={"max_failures": 0})
    for _ in range(3):
        assert all(made.is_retried(not_started()) for _ in range(START_RETRIES))
        made.launched()
    assert pauses == [1.0, 2.0, 4.0, 8.0] * 3


def test_pauses_after_failed_starts_follow_the_spec_where_it_has_longer_ones() -> None:
    made, pauses = retries(failure={"backoff_initial_s": 3.0, "backoff_max_s": 7.0})
    assert all(made.is_retried(not_started()) for _ in range(3))
    assert pauses == [3.0, 6.0, 7.0]
