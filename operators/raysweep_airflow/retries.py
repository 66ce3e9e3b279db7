"""The retry policy for Airflow: a task is tried again only where that can help."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from raysweep import errors
from raysweep.errors import RaysweepError, SpecError

if TYPE_CHECKING:
    from airflow.sdk import ExceptionRetryPolicy


def retry_policy(delay: timedelta | None = None) -> ExceptionRetryPolicy:
    """A policy for tasks that run raysweep: infrastructure errors are retried, bad code and specs are not.

    The operators hold to it by themselves; for them it only sets the delay. Functions that call raysweep need
    it: `@task(retries=3, retry_policy=retry_policy())`. Other errors are left to Airflow.

    Args:
        delay: How long to wait before a retry; default: the task's own `retry_delay`.

    Raises: SpecError before Airflow 3.3, which has no retry policies.
    """
    try:
        from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
    except ImportError:
        fix = "leave it out; raise AirflowFailException for errors whose `retryable` is False"
        raise SpecError("retry_policy", "requires Airflow 3.3 or newer", fix) from None
    passing: list[str] = []
    lasting: list[str] = []
    for cls in _classes(RaysweepError):
        (passing if cls.retryable else lasting).append(f"{cls.__module__}.{cls.__qualname__}")
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=[*passing],
                action=RetryAction.RETRY,
                retry_delay=delay,
                reason="the infrastructure failed: the next try continues with the sweep",
                match_subclasses=False,
            ),
            RetryRule(
                exception=[*lasting],
                action=RetryAction.FAIL,
                reason="the next try would end the same way",
                match_subclasses=False,
            ),
        ]
    )


def _classes(root: type[RaysweepError]) -> list[type[RaysweepError]]:
    found = [root]
    for cls in root.__subclasses__():
        if cls.__module__ == errors.__name__:
            found += _classes(cls)
    return list(dict.fromkeys(found))
