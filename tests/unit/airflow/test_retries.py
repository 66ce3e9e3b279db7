"""The retry policy: what `retryable` of an error says, through Airflow's own classes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import ExceptionRetryPolicy, RetryAction

from raysweep import errors
from raysweep_airflow import retry_policy


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (errors.ClusterLostError("http://x", "killed"), RetryAction.RETRY),
        (errors.StorageUnavailableError("s3://b", "503"), RetryAction.RETRY),
        (errors.SweepHeldError("s", "process 3"), RetryAction.RETRY),
        (errors.TokenRefusedError("http://x", "403"), RetryAction.FAIL),
        (errors.CheckpointDamagedError("s3://b/x", "is torn"), RetryAction.FAIL),
        (errors.SpecError("mode", "is none"), RetryAction.FAIL),
        (errors.SweepFailedError(None, "user code"), RetryAction.FAIL),
        (OSError("disk"), RetryAction.DEFAULT),
    ],
)
def test_what_is_tried_again(error: Exception, action: RetryAction) -> None:
    policy = retry_policy(timedelta(seconds=7))
    decision = policy.evaluate(error, try_number=1, max_tries=3)
    assert decision.action is action
    assert (decision.retry_delay == timedelta(seconds=7)) is (action is RetryAction.RETRY)


def test_it_can_be_stored_with_a_dag() -> None:
    again = ExceptionRetryPolicy.deserialize(retry_policy().serialize())
    lost = again.evaluate(errors.ClusterLostError("x", "y"), try_number=1, max_tries=3)
    assert lost.action is RetryAction.RETRY
