"""Failures that say something about a config: which are told to the search, and what `Infeasible` costs."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.views.scores import told
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import Infeasible
from raysweep.worker.runner import describe
from tests.unit.core.sweep import Sweep, running
from tests.unit.core.toys import DIED, RAISED

NEEDS = Failure(origin="infeasible", type="Infeasible", message="needs 90 GB")
NO_RETRY = {"max_failures": 0, "max_worker_deaths": 0}


def ends(sweep: Sweep, commands: Any) -> list[str]:
    return [each.end for each in commands if isinstance(each, cmd.TellSearch)]


def began(**fields: Any) -> Sweep:
    return running(1, trials=1, **fields)


@pytest.mark.parametrize(
    ("failure", "end"),
    [
        (NEEDS, "infeasible"),
        (Failure(origin="memory", type="KernelOutOfMemory", message="x"), "infeasible"),
        (Failure(origin="gpu_memory", type="OutOfMemoryError", message="x"), "infeasible"),
        (Failure(origin="exception", type="TypeError", bases=("TypeError",)), "infeasible"),
        (RAISED, "failed"),  # it was not run again: chance may have been to blame
        (DIED, "failed"),
        (Failure(origin="hang", type="TrialHung"), "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.type,
)
def test_what_the_search_receives_of_a_failed_trial(failure: Failure, end: str) -> None:
    sweep = began(failure=NO_RETRY)
    assert ends(sweep, sweep.failed(0, failure)) == [end]
    known = told(sweep.state, sweep.state.trials[0])
    assert known is not None
    assert known.end == end, "and the same after a takeover"


def test_an_error_in_user_code_teaches_once_its_retry_has_failed_as_well() -> None:
    sweep = began(failure={"max_failures": 1, "backoff_initial_s": 0.1})
    assert ends(sweep, sweep.failed(0)) == []
    sweep.timer(200.0)
    sweep.began(0, attempt=2)
    assert ends(sweep, sweep.failed(0, attempt=2)) == ["infeasible"]


def test_a_retry_after_a_dead_worker_is_no_retry_of_user_code() -> None:
    sweep = began(failure={"max_failures": 0, "max_worker_deaths": 1, "backoff_initial_s": 0.1})
    sweep.report(0, 0.5)
    assert ends(sweep, sweep.failed(0, DIED)) == []
    sweep.timer(200.0)
    sweep.began(0, attempt=2)
    assert ends(sweep, sweep.failed(0, attempt=2)) == ["failed"]


def test_a_metric_that_is_not_finite_teaches() -> None:
    sweep = began()
    sweep.report(0, "NaN")
    assert ends(sweep, sweep.stopped(0)) == ["infeasible"]


def test_infeasible_is_not_retried() -> None:
    sweep = began(failure={"max_failures": 5})
    sweep.failed(0, NEEDS)
    assert sweep.trial_state(0) == "failed"
    assert sweep.state.trials[0].attempts[-1].kind == "infeasible"


def test_the_breaker_and_the_fraction_do_not_count_infeasible_trials() -> None:
    sweep = running(1, trials=9, failure={"breaker_trials": 2, "max_failed_fraction": 0.2, "max_failures": 0})
    for number in range(6):
        sweep.began(number)
        sweep.failed(number, NEEDS)
    assert sweep.state.phase == "running"
    sweep.began(6)
    sweep.failed(6, RAISED)
    assert sweep.state.phase == "running", "the first that counts"
    sweep.began(7)
    sweep.failed(7, RAISED)
    assert sweep.state.phase != "running", "two of two that count have failed in user code"


def test_the_facts_of_infeasible_are_its_own_class_with_its_reason() -> None:
    class Mine(Infeasible):
        pass

    for error in (Infeasible("needs 90 GB"), Mine("needs 90 GB")):
        facts = describe(error)
        assert (facts.origin, facts.message) == ("infeasible", "needs 90 GB")
    assert describe(Infeasible()).message == "the config cannot work"
    assert describe(RuntimeError("needs 90 GB")).origin == "exception"
