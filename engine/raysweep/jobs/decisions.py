"""What to do about a sweep on a cluster, as pure functions: submit or attach, and what an end means.

`decide` looks at the newest job of a sweep and at whether the sweep has an outcome:

| newest job          | outcome | do                                                                  |
|---------------------|---------|---------------------------------------------------------------------|
| any, or none        | yes     | return it; submit nothing                                           |
| PENDING, RUNNING    | reopens | attach                                                              |
| any other, or none  | reopens | submit the next number                                              |
| none                | no      | submit number 1                                                     |
| PENDING, RUNNING    | no      | attach                                                              |
| SUCCEEDED           | no      | refuse: the storage is wrong or not shared                          |
| FAILED, GONE        | no      | submit the next number: it resumes from the journal                 |
| STOPPED             | no      | refuse: a person stopped it; with `on_cancelled="resume"` as FAILED |

An outcome *reopens* where the sweep is to go on: it was cancelled, and `on_cancelled="resume"`; or a deadline
or a budget ended it, and the spec asks for more of that.

GONE is a job that once was submitted and that the cluster does not know (any more): its head was restarted.

`verdict_of` says what a caller makes of how a sweep, or a training run, ended:

| ends how                                     | verdict     | retry |
|----------------------------------------------|-------------|-------|
| completed, target, plateau                   | success     | -     |
| deadline, budget, enough trials finished     | success (`accept_partial`), else failure | no |
| failed outcome, or one with no best trial    | failure     | no    |
| cancelled outcome, or a job that was stopped | cancelled   | no    |
| error that is retryable                      | failure     | yes   |
| any other error                              | failure     | no    |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from raysweep.errors import JobStoppedError, RaysweepError, SweepFailedError, TrainingFailedError
from raysweep.jobs.options import OnCancelled
from raysweep.outcome import SweepOutcome, TrainOutcome

NewestStatus = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED", "GONE"]
Do = Literal["return", "submit", "attach", "refuse_stopped", "refuse_storage"]

_WHOLE: Final = frozenset({"completed", "target", "plateau"})
_PARTIAL: Final = frozenset({"deadline", "budget"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest job of a sweep: its number, from 1, and what became of it."""

    number: int
    status: NewestStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, and with which job number (0: none)."""

    do: Do
    number: int = 0


def decide(
    newest: Newest | None,
    *,
    has_outcome: bool,
    on_cancelled: OnCancelled = "keep",
    is_reopening: bool = False,
) -> Decision:
    """The row of the first table that fits."""
    number = newest.number if newest is not None else 0
    if has_outcome and is_reopening:
        is_running = newest is not None and newest.status in ("PENDING", "RUNNING")
        return (
            Decision(do="attach", number=number) if is_running else Decision(do="submit", number=number + 1)
        )
    if has_outcome:
        return Decision(do="return", number=number)
    if newest is None:
        return Decision(do="submit", number=1)
    if newest.status in ("PENDING", "RUNNING"):
        return Decision(do="attach", number=number)
    if newest.status == "SUCCEEDED":
        return Decision(do="refuse_storage", number=number)
    if newest.status == "STOPPED" and on_cancelled != "resume":
        return Decision(do="refuse_stopped", number=number)
    return Decision(do="submit", number=number + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an end means for the step of a pipeline."""

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
    if isinstance(end, SweepOutcome) and end.best is None:
        return Verdict(result="failure")
    if end.status in _WHOLE:
        return Verdict(result="success")
    if isinstance(end, SweepOutcome) and end.status in _PARTIAL and accept_partial:
        is_enough = finished_trials(end) >= trials_needed(end, min_trials)
        return Verdict(result="success", is_partial=True) if is_enough else Verdict(result="failure")
    return Verdict(result="failure")


def finished_trials(outcome: SweepOutcome) -> int:
    """How many trials came to an end of their own, or were stopped early."""
    return outcome.counts.finished


def trials_needed(outcome: SweepOutcome, min_trials: int = 1) -> int:
    """How many must have finished for a search that was cut short to count."""
    return max(min_trials, outcome.min_trials, 1)
