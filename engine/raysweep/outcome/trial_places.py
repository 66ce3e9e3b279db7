"""The places that a trial's outcome names, changed by one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raysweep.outcome.record import ErrorInfo
from raysweep.outcome.trial import AttemptOutcome, TrialOutcome

Change = Callable[[str], str]


def trial_with(trial: TrialOutcome, change: Change) -> TrialOutcome:
    """The trial with each URI in it changed; the same object where it has none."""
    update: dict[str, object] = {}
    if trial.checkpoint_uri is not None:
        update["checkpoint_uri"] = change(trial.checkpoint_uri)
    if any(attempt.error is not None for attempt in trial.attempts):
        update["attempts"] = tuple(_attempt_with(attempt, change) for attempt in trial.attempts)
    if trial.error is not None:
        update["error"] = error_with(trial.error, change)
    return trial.model_copy(update=update) if update else trial


def fields_with(trial: dict[str, Any], change: Change) -> dict[str, Any]:
    """The same of a trial's JSON, which is changed in its place."""
    if trial.get("checkpoint_uri"):
        trial["checkpoint_uri"] = change(trial["checkpoint_uri"])
    for holder in (trial, *trial.get("attempts", ())):
        error = holder.get("error")
        if error and error.get("traceback_uri"):
            error["traceback_uri"] = change(error["traceback_uri"])
    return trial


def error_with(error: ErrorInfo | None, change: Change) -> ErrorInfo | None:
    """The error with the URI of its traceback changed."""
    if error is None or error.traceback_uri is None:
        return error
    return error.model_copy(update={"traceback_uri": change(error.traceback_uri)})


def _attempt_with(attempt: AttemptOutcome, change: Change) -> AttemptOutcome:
    if attempt.error is None:
        return attempt
    return attempt.model_copy(update={"error": error_with(attempt.error, change)})
