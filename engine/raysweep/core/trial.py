"""What the core knows of one trial and of one slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from raysweep.core.failures import Failure, FailureKind
from raysweep.core.lifecycle import Cause, TrialState
from raysweep.core.stops import StopReason

Metrics = dict[str, JsonValue]
NO_METRICS: Final[Metrics] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One ended attempt: `end` is the cause in the lifecycle table."""

    attempt: int
    started_at: float | None
    ended_at: float
    end: Cause
    node: str = ""
    kind: FailureKind | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint: `iteration` reports lie behind it, `score` is the last one's metric."""

    number: int
    iteration: int
    uri: str
    score: float | None
    size_bytes: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Trial:
    """One trial. `reports` counts all reports, `iteration` those on the way to the present result.

    Attempts are numbered from 1. A number is given when a slot takes the trial, and never again: one that was
    taken back before it began leaves a gap. `memory_bytes`: it ran out of memory, and needs so much.
    `step_s` and `save_s` are the seconds from report to report and
    from checkpoint to checkpoint, last seen in this attempt; kept where the sweep plans towards an end.
    """

    number: int
    config: Metrics
    state: TrialState = "pending"
    attempt: int = 0
    slot: int | None = None
    node: str = ""
    stop_reason: StopReason | None = None
    reports: int = 0
    attempt_reports: int = 0
    attempt_iteration: int = 0
    iteration: int = 0
    overrun: int = 0
    last: Metrics = field(default_factory=lambda: NO_METRICS)
    best: Metrics = field(default_factory=lambda: NO_METRICS)
    last_score: float | None = None
    best_score: float | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    next_checkpoint: int = 0
    attempts: tuple[Attempt, ...] = ()
    started_at: float | None = None
    attempt_started_at: float | None = None
    ended_at: float | None = None
    due_at: float | None = None
    memory_bytes: int | None = None
    reported_at: float | None = None
    step_s: float | None = None
    saved_at: float | None = None
    save_s: float | None = None

    def count_failures(self, *kinds: FailureKind, but_on: Collection[str] = ()) -> int:
        """How many attempts ended in these classes of failure, those on the nodes `but_on` left out."""
        return sum(attempt.kind in kinds and attempt.node not in but_on for attempt in self.attempts)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest committed checkpoint."""
        return self.checkpoints[-1] if self.checkpoints else None


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One worker: `queue` holds the trials handed to it, the running one first.

    `recalling` holds the (trial, attempt) pairs that it was asked to give back; some may have begun since.
    `is_leaving`: its node is no good any more, so it is closed when its trial has ended. `memory_bytes`: it
    was opened for trials that need so much. `heard_at`: when its running trial was last heard of; `is_busy`:
    that stores or fetches a checkpoint, and cannot report.
    """

    number: int
    is_open: bool = False
    is_hungry: bool = False
    is_leaving: bool = False
    memory_bytes: int | None = None
    heard_at: float = 0.0
    is_busy: bool = False
    node: str = ""
    recalling: tuple[tuple[int, int], ...] = ()
    queue: deque[int] = field(default_factory=deque)


def trial_id(number: int) -> str:
    """The public id of trial `number`: five digits or more, so that names sort."""
    return f"{number:05d}"
