"""The end of a pipeline's step: hand the outcome on, or fail with a text that helps at 03:00.

Every orchestrator, deferred or not, embedded or on a cluster, ends in `complete`.

`verdict_of` says what a caller makes of how a sweep, or a training run, ended:

| ends how                                     | verdict     | retry |
|----------------------------------------------|-------------|-------|
| completed, target, plateau                   | success     | -     |
| deadline, budget, enough trials finished     | success (`accept_partial`), else failure | no |
| failed outcome, or one with no best trial    | failure     | no    |
| cancelled outcome, or a job that was stopped | cancelled   | no    |
| error that is retryable                      | failure     | yes   |
| any other error                              | failure     | no    |

With `num_samples: null` the deadline or budget is the proper end: `accept_partial` is ignored.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from raysweep.errors import JobStoppedError, RaysweepError, SweepFailedError, TrainingFailedError, one_line
from raysweep.outcome import ErrorInfo, SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.runs.reading.view import Outcome
from raysweep.storage.logs import log_name

_WHOLE: Final = frozenset({"completed", "target", "plateau"})
_PLACE: Final = re.compile(r'File "([^"]+)", line (\d+), in (.+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The meaning of an end for the step of a pipeline."""

    result: Literal["success", "failure", "cancelled"]
    is_retryable: bool = False
    is_partial: bool = False
    """The best so far of a search that was cut short."""


def verdict_of(
    end: SweepOutcome | TrainOutcome | RaysweepError, *, accept_partial: bool = True, min_trials: int = 1
) -> Verdict:
    """The row of the second table that fits.

    Args:
        end: The outcome, or the error that was raised in its stead.
        accept_partial: Whether a search cut short by its deadline or budget counts, with the best so far.
        min_trials: How many of its trials must have finished for that, at least; its spec's own
            `stop.min_trials` counts too.
    """
    if isinstance(end, SweepFailedError | TrainingFailedError) and isinstance(
        end.outcome, SweepOutcome | TrainOutcome
    ):
        end = end.outcome
    if isinstance(end, RaysweepError):
        if isinstance(end, JobStoppedError):
            return Verdict(result="cancelled")
        return Verdict(result="failure", is_retryable=end.retryable)
    if end.status == "cancelled":
        return Verdict(result="cancelled")
    if isinstance(end, SweepOutcome) and end.found_best is None:
        return Verdict(result="failure")
    if end.status in _WHOLE:
        return Verdict(result="success")
    if isinstance(end, SweepOutcome) and end.has_run_out and (accept_partial or not end.is_partial):
        is_enough = end.counts.finished >= trials_needed(end, min_trials)
        return (
            Verdict(result="success", is_partial=end.is_partial) if is_enough else Verdict(result="failure")
        )
    return Verdict(result="failure")


def trials_needed(outcome: SweepOutcome, min_trials: int = 1) -> int:
    """The number of trials that must have finished for a search that was cut short to count."""
    return max(min_trials, outcome.min_trials, 1)


def complete(
    end: Outcome | RaysweepError, *, accept_partial: bool = True, accept_failed: bool = False
) -> Outcome:
    """The outcome, if the step succeeds; whether a retry can help is in `retryable` of what it raises.

    Args:
        end: The outcome, or the error that was raised in its stead.
        accept_partial: Whether a search cut short by its deadline or a budget counts, with the best so far.
        accept_failed: Whether a sweep counts however it ended, unless it was cancelled: its trials are
            evaluations, and the caller decides by each of them.

    Raises:
        SweepFailedError, TrainingFailedError: With the first error of a trial, its place and its config in
            the text; `details_of` has the whole traceback. Not retryable.
        RaysweepError: `end` itself, where it is an error.
    """
    outcome = end
    if isinstance(end, SweepFailedError | TrainingFailedError):
        outcome = end.outcome
    if isinstance(outcome, RaysweepError):
        raise outcome
    if accept_failed and isinstance(outcome, SweepOutcome) and outcome.status != "cancelled":
        return outcome
    verdict = verdict_of(outcome, accept_partial=accept_partial)
    if verdict.result == "success":
        return outcome
    if isinstance(outcome, TrainOutcome):
        raise TrainingFailedError(outcome, _training_text(outcome))
    raise SweepFailedError(outcome, _sweep_text(outcome, accept_partial))


def details_of(end: Outcome | RaysweepError) -> str:
    """All that is known of a failure, in lines for a log: config, traceback, where more is; may be empty."""
    outcome = getattr(end, "outcome", end)
    if not isinstance(outcome, SweepOutcome | TrainOutcome) or outcome.error is None:
        return ""
    lines = []
    config = _config_of(outcome)
    if config:
        lines.append(f"config: {orjson.dumps(config, default=str).decode()}")
    if outcome.error.traceback:
        lines.append(outcome.error.traceback.rstrip())
    if outcome.error.traceback_uri:
        lines.append(f"the whole traceback: {outcome.error.traceback_uri}")
    if isinstance(outcome, SweepOutcome):
        lines += _log_lines(outcome)
    return "\n".join(lines)


def _sweep_text(outcome: SweepOutcome, accept_partial: bool) -> str:
    head = f"sweep {outcome.sweep_id!r} {outcome.status}: {one_line(outcome.why, 200)}"
    if outcome.status == "cancelled":
        return f"{head}; see {outcome.uri}"
    if outcome.has_run_out:
        finished, needed = outcome.counts.finished, trials_needed(outcome)
        if outcome.is_partial and not accept_partial:
            why = "accept_partial is off, so its best so far does not count"
        elif finished < needed:
            why = f"{finished} finished trials are fewer than the {needed} needed (stop.min_trials)"
        else:
            why = outcome.infeasible or "no trial has a score"
        return f"{head}; {why}; give it more time, or see {outcome.uri}"
    if outcome.status != "failed":
        return f"{head}; {outcome.infeasible or 'no trial has a score'}; see {outcome.uri}"
    return f"{head}; {_error_text(outcome.error, _config_of(outcome))}; see {outcome.uri}"


def _training_text(outcome: TrainOutcome) -> str:
    error = _error_text(outcome.error, outcome.config)
    return f"training {outcome.run_id!r} failed: {error}; see {outcome.uri}"


def _error_text(error: ErrorInfo | None, config: dict[str, object] | None) -> str:
    """`ValueError: as asked (train.py:12 in fit), config {"lr": 0.1}`."""
    if error is None:
        return "no reason recorded"
    text = f"{error.type}: {one_line(error.message, 160)}" if error.type else one_line(error.message, 160)
    place = _place_of(error.traceback or "")
    text += f" ({place})" if place else ""
    if config:
        text += f", config {one_line(orjson.dumps(config, default=str).decode(), 120)}"
    return text


def _place_of(traceback: str) -> str:
    """The place where it was raised: the last place of the traceback's first exception."""
    first = traceback.split("\n\n", 1)[0]
    found = _PLACE.findall(first)
    if not found:
        return ""
    path, line, name = found[-1]
    return f"{path.rpartition('/')[2]}:{line} in {one_line(name, 40)}"


def _config_of(outcome: Outcome) -> dict[str, object] | None:
    """The config of the trial whose error the outcome shows."""
    if isinstance(outcome, TrainOutcome):
        return outcome.config
    failed: list[TrialOutcome] = [trial for trial in outcome.trials if trial.state == "failed"]
    same = [t for t in failed if any(attempt.error == outcome.error for attempt in t.attempts)]
    found = next(iter(same or failed), None)
    return found.config if found is not None else None


def _log_lines(outcome: SweepOutcome) -> list[str]:
    """The log of the attempt whose error the outcome shows, and the command that reads it."""
    for trial in outcome.trials:
        for attempt in trial.attempts:
            if trial.state == "failed" and attempt.error == outcome.error:
                uri = f"{outcome.uri}/{log_name(trial.trial_id, attempt.attempt)}"
                parts = ["raysweep", "logs", outcome.uri, "--trial", str(trial.number)]
                command = shlex.join([*parts, "--attempt", str(attempt.attempt)])
                return [f"what it printed: {uri}", f"to read it: {command}"]
    return []
