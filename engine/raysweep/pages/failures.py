"""Failures of a sweep, those of one cause together, each with an example: traceback, log, config."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from raysweep.documents.json_values import leaves
from raysweep.errors import RaysweepError
from raysweep.numeric.shown import show_number
from raysweep.outcome import AttemptOutcome, ErrorInfo, TrialOutcome
from raysweep.pages.columns import show_label
from raysweep.runs.reading.logs import LogInfo, read_log
from raysweep.runs.reading.whole_sweep import WholeSweep

MAX_GROUPS: Final = 20
MAX_TRIALS: Final = 200
"""The number of trials of a group that are named."""
LOG_BYTES: Final = 4096
"""The bytes of the end of a log that are shown."""

Cause = tuple[str, str, str]


def failure_groups(whole: WholeSweep, *, has_logs: bool = True) -> list[dict[str, Any]]:
    """The causes of failed attempts; those that ended trials come first, then the frequent ones.

    Args:
        whole: The sweep.
        has_logs: Read the log of each example from the storage.
    """
    attempts: Counter[Cause] = Counter()
    failed: dict[Cause, list[int]] = {}
    examples: dict[Cause, tuple[TrialOutcome, AttemptOutcome | None, ErrorInfo]] = {}
    for trial in whole.trials:
        for attempt in trial.attempts:
            if attempt.error is not None:
                cause = cause_of(attempt.error)
                attempts[cause] += 1
                examples.setdefault(cause, (trial, attempt, attempt.error))
        error = trial.failure
        if error is not None:
            cause = cause_of(error)
            if cause not in failed:
                last = trial.attempts[-1] if trial.attempts else None
                examples[cause] = (trial, last, error)
            failed.setdefault(cause, []).append(trial.number)
    order = sorted(examples, key=lambda cause: (-len(failed.get(cause, ())), -attempts[cause], cause))
    return [
        _group(whole, cause, failed.get(cause, []), attempts[cause], examples[cause], has_logs=has_logs)
        for cause in order[:MAX_GROUPS]
    ]


def cause_of(error: ErrorInfo) -> Cause:
    """The common cause of failures: their class, the exception, and the line of user code or the message."""
    return error.kind, error.type, error.where or error.line[:80]


def _group(
    whole: WholeSweep,
    cause: Cause,
    failed: list[int],
    attempts: int,
    example: tuple[TrialOutcome, AttemptOutcome | None, ErrorInfo],
    *,
    has_logs: bool,
) -> dict[str, Any]:
    trial, attempt, error = example
    number = attempt.attempt if attempt is not None else 0
    return {
        "kind": error.kind,
        "type": error.type,
        "line": error.line,
        "where": error.where,
        "failed": len(failed),
        "attempts": attempts,
        "trials": failed[:MAX_TRIALS],
        "trial": trial.number,
        "attempt": number,
        "node": attempt.node if attempt is not None else "",
        "traceback": error.traceback or "",
        "traceback_uri": error.traceback_uri or "",
        "config": config_pairs(trial.config),
        "log": _log_tail(whole, trial.number, number) if has_logs and number else "",
    }


def config_pairs(config: dict[str, Any]) -> list[list[str]]:
    """The parameters by name, as texts."""
    return [
        [name, show_number(value) if isinstance(value, float) else show_label(value)]
        for name, value in leaves(config)
    ]


def _log_tail(whole: WholeSweep, trial: int, attempt: int) -> str:
    log = LogInfo(trial=trial, attempt=attempt, is_final=True, size_bytes=0, modified_at=0.0)
    try:
        text = read_log(whole.folder, log)
    except RaysweepError as error:
        return f"[the log cannot be read: {error}]"
    if text is None:
        return ""
    data = text.encode()
    if len(data) <= LOG_BYTES:
        return data.decode(errors="replace")
    tail = data[-LOG_BYTES:]
    return "[…]\n" + tail[tail.find(b"\n") + 1 :].decode(errors="replace")
