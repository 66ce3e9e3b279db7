"""The outcome of one trial: its state, config, metrics, attempts, checkpoint."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from raysweep.documents.json_numbers import Metrics, Number
from raysweep.documents.json_values import leaves
from raysweep.outcome.record import ErrorInfo, Record
from raysweep.outcome.showing.html import trial_html
from raysweep.specs.scheduled_config import ScheduledConfig

TrialState = Literal["pending", "running", "paused", "completed", "stopped", "failed", "cancelled"]


def _is_empty(value: object) -> bool:
    return not value


class AttemptOutcome(Record):
    """One attempt to run a trial. Times are seconds since 1970 UTC."""

    attempt: int
    """Counts from 1; one that never began leaves a gap."""
    node: str = ""
    """The node that it ran on."""
    started_at: float
    ended_at: float | None = None
    end: str = ""
    """The kind of end: `completed`, `stopped`, `failed`, `lost`, `preempted`, `paused`, `exploited`, ..."""
    error: ErrorInfo | None = None
    config: dict[str, Any] | None = None
    """The config that it ran with, where the trial continued with another; else the trial's own."""
    donor: int | None = None
    """The number of the trial from whose checkpoint this one continued afterwards."""

    @property
    def took_s(self) -> float | None:
        """The time that it ran, in seconds; None before its end."""
        return _took_s(self)


class TrialOutcome(Record):
    """One trial. Times are seconds since 1970 UTC."""

    trial_id: str
    number: int
    """Counts from 0 in the order in which the configs were drawn."""
    state: TrialState
    config: dict[str, Any] = {}
    scale: dict[str, int | float] = Field(default_factory=dict, exclude_if=_is_empty)
    """The size at which it ran, by name; empty in a sweep without scales."""
    larger_scales: int = Field(default=0, exclude_if=_is_empty)
    """The number of the sweep's scales that are larger: only of the largest one is a trial the best."""
    metrics: Metrics = {}
    """The last report."""
    best_metrics: Metrics = {}
    """The report with the best metric."""
    score: Number | None = None
    """The metric that ranks the trial; None where it never reported one."""
    violations: dict[str, Number | None] = {}
    """By constraint, how far the report that ranks the trial is from satisfying it: 0 or less, it does; None:
    for which it is unknown. Empty in a sweep without constraints."""
    reports: int = 0
    """Its reports, over all attempts, without `overrun_reports`."""
    overrun_reports: int = 0
    """Reports that it made before a stop reached it; they rank nothing."""
    attempts: tuple[AttemptOutcome, ...] = ()
    checkpoint_uri: str | None = None
    max_t: float | None = None
    """The time to which it goes, or went, beyond its scheduler's end; None where it was not extended."""
    started_at: float | None = None
    ended_at: float | None = None
    error: ErrorInfo | None = None
    schedule: tuple[ScheduledConfig, ...] = ()
    """The configs that made it, each from the report on with which it took over, through all donors whose
    checkpoints it continued from. Empty where `config` made it from the start."""

    def _repr_html_(self) -> str:
        rows = [("score", self.score), ("reports", self.reports), *leaves(self.config), *self.metrics.items()]
        rows += [("checkpoint", self.checkpoint_uri)] if self.checkpoint_uri else []
        rows += [("error", self.problem)] if self.problem else []
        return trial_html(f"trial {self.trial_id}", self.state, rows)

    @property
    def violated(self) -> tuple[str, ...]:
        """The constraints that it does not satisfy, or of which that cannot be told."""
        return tuple(text for text, far in self.violations.items() if far is None or far > 0.0)

    @property
    def is_feasible(self) -> bool:
        """True if it satisfies all constraints."""
        return not self.violations or not self.violated

    @property
    def violation(self) -> float:
        """Its distance from satisfying all of them: 0, it does; infinite: it cannot be told."""
        return sum(math.inf if far is None else max(far, 0.0) for far in self.violations.values())

    @property
    def num_attempts(self) -> int:
        """The number of attempts that were begun, one that runs included."""
        return len(self.attempts) + (self.state == "running")

    @property
    def took_s(self) -> float | None:
        """From its first start to its end, in seconds; None before that."""
        return _took_s(self)

    @property
    def failure(self) -> ErrorInfo | None:
        """The error that made it fail; None for one that did not."""
        error = self.error or (self.attempts[-1].error if self.attempts else None)
        return error if self.state == "failed" else None

    @property
    def problem(self) -> str:
        """The same on one line; empty for one that did not."""
        return self.failure.line if self.failure is not None else ""


def _took_s(ran: AttemptOutcome | TrialOutcome) -> float | None:
    return None if ran.started_at is None or ran.ended_at is None else ran.ended_at - ran.started_at
