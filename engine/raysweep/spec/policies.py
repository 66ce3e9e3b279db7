"""When trials are tried again, what is kept of them, and when the sweep ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raysweep.spec.base import SpecModel
from raysweep.spec.validation import Problem, show

Seconds = Annotated[float, Field(ge=0)]


def _seconds(given: Any) -> Any:
    return given.total_seconds() if isinstance(given, timedelta) else given


PositiveSeconds = Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_seconds)]


def _aware(given: Any) -> Any:
    """A moment with its offset, in UTC, so that one moment has one spelling."""
    example = 'write one such as "2026-11-21T06:00:00+01:00"'
    if given is None:
        return None
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given.strip())
        except ValueError:
            raise Problem(f"{show(given)} is not a date and time in ISO 8601", example) from None
    elif isinstance(given, datetime):
        moment = given
    else:
        raise Problem(f"expected a date and time, got {show(given)}", example)
    if moment.utcoffset() is None:
        raise Problem(
            f"{moment.isoformat()} has no offset from UTC",
            f'write "{moment.isoformat()}+00:00", or with your offset',
        )
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        raise Problem(f"{show(given)} is out of range", example) from None
    # A plain datetime: subclasses such as pendulum's do not compare equal in every field.
    return datetime(*utc.timetuple()[:6], utc.microsecond, tzinfo=UTC)


class FailurePolicy(SpecModel):
    """What is done when trials fail."""

    renamed_fields: ClassVar[dict[str, str]] = {"max_retries": "max_failures", "retries": "max_failures"}

    max_failures: int = Field(default=1, ge=0)
    """How often a trial is tried again after its own code failed."""
    max_worker_deaths: int = Field(default=3, ge=0)
    """How often a trial is tried again after its worker or node died under it."""
    backoff_initial_s: Seconds = 1.0
    """Seconds before the first retry; doubles with each."""
    backoff_max_s: Seconds = 60.0
    """The longest pause before a retry, in seconds."""
    max_failed_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """The sweep fails when more than this part of its trials failed; default: no limit."""
    breaker_trials: int = Field(default=3, ge=0)
    """The sweep fails at once when its first so many trials all failed in user code; 0 switches that off."""
    non_finite: Literal["fail", "ignore"] = "fail"
    """What a NaN or infinite metric does: fails the trial, or is passed over."""
    max_ooms: int = Field(default=3, ge=0)
    """How often a trial is tried again after it ran out of the host's memory."""
    oom_memory_factor: float = Field(default=2.0, ge=1)
    """Each retry after that gets so many times the memory, where a node has it; 1 asks for no more."""
    memory_limit_factor: Annotated[float, Field(ge=1)] | None = None
    """A trial that uses more than this times its `resources.memory` is ended before it takes its node down;
    default: it is left to Ray's memory monitor."""
    report_timeout_s: PositiveSeconds = None
    """A trial that has not reported for so many seconds hangs: it is killed, and tried again as after a
    worker's death. The time in which a checkpoint is stored counts too. Default: no limit."""
    start_timeout_s: PositiveSeconds = 600.0
    """How long a worker may take to load the trainable, in seconds; None: for ever."""
    placement_timeout_s: Annotated[float, BeforeValidator(_seconds), Field(gt=0)] = 300.0
    """After so many seconds without a place for a worker, or for what a trial has asked Ray for, the reason
    is said. With nothing running and no node that could hold a trial, the sweep is left, resumable."""
    bad_node_failures: int = Field(default=3, ge=0)
    """A node where so many trials failed, while none failed elsewhere, gets no more; 0 switches that off."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.backoff_max_s < self.backoff_initial_s:
            raise Problem(
                f"{self.backoff_max_s} is below backoff_initial_s {self.backoff_initial_s}",
                f"set backoff_max_s to at least {self.backoff_initial_s}",
                ("backoff_max_s",),
            )
        return self


class CheckpointPolicy(SpecModel):
    """Which checkpoints of a trial are kept."""

    renamed_fields: ClassVar[dict[str, str]] = {"num_to_keep": "keep_last", "keep": "keep_last"}

    keep_last: int = Field(default=1, ge=1)
    """How many of the newest checkpoints are kept."""
    keep_best: bool = True
    """Whether the checkpoint of the best report is kept too."""


class StopPolicy(SpecModel):
    """When a trial, or the whole sweep, has done enough."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "training_iteration": "stop.trial.training_iteration",
        "time_total_s": "stop.trial_time_s",
        "max_t": "scheduler.asha.max_t",
    }

    deadline: Annotated[datetime | None, BeforeValidator(_aware)] = None
    """When the sweep ends, finished or not: ISO 8601 with its offset from UTC."""
    time_budget_s: PositiveSeconds = None
    """How long the sweep may run, all of its controllers together, in seconds."""
    target: float | None = None
    """The sweep ends when a trial's metric is at least as good as this."""
    trial: dict[str, float] = Field(default_factory=dict)
    """Limits for each trial: it ends when the value that it reports is at or above the limit."""
    trial_time_s: PositiveSeconds = None
    """How long one attempt of a trial may run, in seconds."""
    grace_s: Annotated[float, BeforeValidator(_seconds), Field(ge=0)] = 10.0
    """How long a trial that is told to stop may take before it is killed, in seconds."""
