"""Classes of failure, their budgets, and the pauses between attempts."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.core.vocabulary.failures import (
    Failure,
    FailureKind,
    Origin,
    backoff_s,
    classify,
    is_retried,
    more_memory,
)
from raysweep.specs import FailurePolicy

RAISED = Failure(origin="exception", type="ValueError", bases=("ValueError", "Exception"))


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (RAISED, "user_error"),
        (Failure(origin="exception"), "user_error"),
        (Failure(origin="process", exit_code=-11), "worker_died"),
        (Failure(origin="start"), "worker_died"),
        (Failure(origin="memory"), "oom"),
        (Failure(origin="placement"), "no_room"),
        (Failure(origin="node"), "preempted"),
        (Failure(origin="metric"), "non_finite"),
        (Failure(origin="hang"), "hung"),
        # What the shell says of a worker process that ended: Ray's exception, and how its node was.
        (Failure(origin="process", type="ActorDiedError", node_state="alive"), "worker_died"),
        (Failure(origin="process", type="ActorDiedError", node_state="dead"), "preempted"),
        (Failure(origin="process", type="ActorDiedError", node_state="draining"), "preempted"),
        (Failure(origin="start", node_state="dead"), "preempted"),
        (Failure(origin="process", bases=("OutOfMemoryError", "RayError")), "oom"),
        # The memory monitor tells the cause better than the state of the node does.
        (Failure(origin="process", bases=("OutOfMemoryError",), node_state="draining"), "oom"),
        (Failure(origin="memory", exit_code=-9, node_state="alive"), "oom"),
        (Failure(origin="gpu_memory", type="OutOfMemoryError"), "gpu_oom"),
        # Ray's error of that name is about the host's memory, met by user code that runs tasks of its own.
        (Failure(origin="exception", bases=("OutOfMemoryError", "RayError")), "user_error"),
    ],
)
def test_classify(failure: Failure, kind: FailureKind) -> None:
    assert classify(failure) == kind


@pytest.mark.parametrize(
    ("origin", "bases", "earlier", "reports", "is_again"),
    [
        ("exception", (), 0, 0, True),
        ("exception", (), 1, 0, True),
        ("exception", (), 2, 0, False),
        # A rerun ends the same way where the code is wrong and nothing was reported.
        ("exception", ("TypeError",), 0, 0, False),
        ("exception", ("ModuleNotFoundError", "ImportError"), 0, 0, False),
        ("exception", ("KeyError", "LookupError"), 0, 0, False),
        ("exception", ("TypeError",), 0, 1, True),
        ("gpu_memory", ("OutOfMemoryError",), 0, 5, False),
        ("process", (), 2, 0, True),
        ("process", (), 3, 0, False),
        ("start", (), 3, 0, False),
        ("memory", (), 2, 0, True),
        ("memory", (), 3, 0, False),
        ("node", (), 1000, 0, True),
        ("metric", (), 0, 5, False),
        ("hang", (), 2, 0, True),
        ("hang", (), 3, 0, False),
    ],
)
def test_is_retried(
    origin: Origin, bases: tuple[str, ...], earlier: int, reports: int, is_again: bool
) -> None:
    failure = Failure(origin=origin, bases=bases)
    policy = FailurePolicy(max_failures=2, max_worker_deaths=3)
    assert is_retried(failure, classify(failure), earlier, reports, policy) is is_again


def test_zero_budgets_retry_nothing_but_preemption() -> None:
    policy = FailurePolicy(max_failures=0, max_worker_deaths=0)
    again = {
        origin: is_retried(Failure(origin=origin), classify(Failure(origin=origin)), 0, 0, policy)
        for origin in get_args(Origin)
    }
    assert [origin for origin, is_again in again.items() if is_again] == ["node"]


@pytest.mark.parametrize(
    ("base", "factor", "largest", "wanted"),
    [
        (1000, 2.0, 0, 2000),
        (1000, 2.0, 4000, 2000),
        (3000, 2.0, 4000, 4000),  # all that there is
        (3900, 2.0, 4000, None),  # nearly all of it was not enough
        (4000, 2.0, 4000, None),
        (1000, 1.0, 4000, 1000),  # asked for no more
        (None, 2.0, 4000, 0),  # nobody knows what it needs
    ],
)
def test_more_memory(base: int | None, factor: float, largest: int, wanted: int | None) -> None:
    assert more_memory(base, factor, largest) == wanted


def test_backoff_doubles_up_to_its_maximum() -> None:
    policy = FailurePolicy(backoff_initial_s=1.0, backoff_max_s=60.0)
    pauses = [backoff_s(policy, 1, 0, retry) for retry in range(1, 10)]
    ceilings = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert all(ceiling / 2 <= pause <= ceiling for pause, ceiling in zip(pauses, ceilings, strict=True))


@given(
    seed=st.integers(0, 2**63 - 1),
    trial=st.integers(0, 10**6),
    retry=st.integers(0, 10**6),
    initial=st.floats(0, 10),
    extra=st.floats(0, 1000),
)
def test_backoff_is_bounded_and_repeats(
    seed: int, trial: int, retry: int, initial: float, extra: float
) -> None:
    """Also for policies that retry a million times: no overflow."""
    policy = FailurePolicy(backoff_initial_s=initial, backoff_max_s=initial + extra)
    pause = backoff_s(policy, seed, trial, retry)
    assert 0 <= pause <= policy.backoff_max_s
    assert pause == backoff_s(policy, seed, trial, retry)


def test_backoff_spreads_trials_that_failed_together() -> None:
    policy = FailurePolicy()
    pauses = {round(backoff_s(policy, 1, trial, 1), 4) for trial in range(100)}
    assert len(pauses) > 90
