"""The end of a try: errors that fail a task for good, and how an outcome is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from raysweep.errors import RaysweepError
from raysweep.runs.reading.view import Outcome
from raysweep.step import brief, details_of
from raysweep_airflow.compat import AirflowFailException


@contextmanager
def explained(log: Any) -> Iterator[None]:
    """Fail at once, and say what is known, for an error that a retry cannot help."""
    try:
        yield
    except RaysweepError as error:
        if details := details_of(error):
            log.error("%s", details)
        if error.retryable:
            raise
        text = f"{type(error).__name__}: {error}"
        if getattr(getattr(error, "outcome", None), "status", "") == "cancelled":
            text += "; clear the task to continue with it"
        raise AirflowFailException(text) from None


def summary_of(outcome: Outcome) -> dict[str, Any]:
    """The summary of the end for the task state store."""
    small = brief(outcome, top_k=1, max_bytes=4_096)
    kept = ("status", "why", "counts", "metric", "best", "metrics", "uri", "outcome_uri")
    return {name: small[name] for name in kept if name in small}


def extra_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an asset's event: no more than a DAG that is scheduled on it needs."""
    return {name: value for name, value in result.items() if name not in ("top_k", "cut")}
