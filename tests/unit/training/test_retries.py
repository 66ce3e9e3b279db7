"""Which failures of a training are retried, by which number, and how soon."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray.train")

from ray.exceptions import RayActorError
from ray.train.v2.api.exceptions import WorkerGroupError

from raysweep.raycompat import train
from raysweep.specs import TrainSpec
from raysweep.training.controller import Retries
from raysweep.training.watch import Watch


def raised() -> BaseException:
    error = train.UserExceptionWithTraceback(ValueError("no"), traceback_str="ValueError: no")
    return WorkerGroupError("a worker raised", {0: error})


def died(beside: bool = False) -> BaseException:
    death = train.WorkerHealthCheckFailedError("gone", RayActorError())
    failures: dict[int, Any] = {1: death}
    if beside:
        failures[0] = train.UserExceptionWithTraceback(ValueError("no"), traceback_str="ValueError: no")
    return WorkerGroupError("a worker died", failures)


def retries(**fields: Any) -> tuple[Retries, list[float]]:
    spec = TrainSpec(trainable="a.b:c", **fields)
    made, pauses = Retries(spec, Watch(run_id="r")), list[float]()
    made.pause = pauses.append
    return made, pauses


def test_deaths_count_as_failures_unless_they_have_a_number() -> None:
    made, _ = retries(max_failures=1)
    assert [made.is_retried(died()), made.is_retried(raised())] == [True, False]
    made, _ = retries(max_failures=1, failure={"max_worker_deaths": 2})
    assert [made.is_retried(error) for error in (died(), raised(), died(), died())] == [
        True,
        True,
        True,
        False,
    ]
    made, _ = retries(max_failures=1, failure={"max_worker_deaths": 0})
    assert [made.is_retried(error) for error in (raised(), died())] == [True, False]


def test_a_worker_that_died_beside_one_that_raised_died_of_it() -> None:
    made, _ = retries(max_failures=0, failure={"max_worker_deaths": 5})
    assert not made.is_retried(died(beside=True))


def test_pauses_double_up_to_the_longest() -> None:
    failure = {"max_worker_deaths": 9, "backoff_initial_s": 2.0, "backoff_max_s": 7.0}
    made, pauses = retries(failure=failure)
    assert all(made.is_retried(died()) for _ in range(4))
    assert pauses == [2.0, 4.0, 7.0, 7.0]


def test_no_pause_by_default() -> None:
    made, pauses = retries(max_failures=3)
    assert made.is_retried(raised())
    assert pauses == [0.0]


def test_nodes_that_are_taken_away_have_no_limit_but_one_that_is_given() -> None:
    made, pauses = retries(max_failures=0)
    assert all(made.is_moved() for _ in range(50))
    assert not pauses
    made, _ = retries(failure={"max_preemptions": 1})
    assert [made.is_moved(), made.is_moved()] == [True, False]
    error = made._watch.error
    assert error is not None
    assert error.kind == "preempted"
    assert "failure.max_preemptions (1)" in error.message
