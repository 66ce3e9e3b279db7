"""A model of a worker's process: what it does with each message, and what it says; without time.

Whoever moves it along decides what happens when. It says what `cluster.wire` lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import JsonValue

from raysweep.core.fleet.actions import Message

End = Literal["returned", "stopped", "failed"]


@dataclass(eq=False, kw_only=True)
class Job:
    """One attempt in a process. `iteration` counts the reports behind its state, resumed ones included."""

    trial: int
    attempt: int
    config: Mapping[str, Any]
    checkpoint: str | None
    iteration: int
    next_checkpoint: int
    reports: int = 0
    stop_reason: str | None = None
    wants_checkpoint: bool = False
    allows: str = "nothing"
    awaits: int | None = None
    is_saving: bool = False
    began_at: float = 0.0

    @property
    def who(self) -> tuple[int, int]:
        """(trial, attempt)."""
        return self.trial, self.attempt

    @property
    def is_waiting(self) -> bool:
        """Whether user code waits inside a report: for the answer, or for a stop."""
        return self.awaits is not None and (self.stop_reason is None or self.wants_checkpoint)

    def may_report(self, *, has_checkpoint: bool) -> bool:
        """Whether its next report is taken; else it ends there."""
        if self.stop_reason is None or self.wants_checkpoint or self.allows == "report":
            return True
        return has_checkpoint and self.allows != "nothing"


@dataclass(eq=False, kw_only=True)
class Process:
    """One worker's process. `post` sends what it says; `queue` waits behind the running `job`."""

    post: Callable[[Message], None]
    queue: deque[Job] = field(default_factory=deque)
    job: Job | None = None

    def take(self, message: Message) -> None:
        """A message arrives."""
        kind, *rest = message
        if kind == "run":
            self.queue.append(_job(rest[0]))
        elif kind == "recall":
            trials: Any = rest[0]
            taken = [job.trial for job in self.queue if job.trial in trials]
            self.queue = deque(job for job in self.queue if job.trial not in trials)
            self.post(["recalled", [*taken]])
        elif self.job is not None and tuple(rest[:2]) == self.job.who:
            self._take_for_job(self.job, kind, rest[2:])

    def _take_for_job(self, job: Job, kind: JsonValue, rest: list[Any]) -> None:
        if kind == "stop":
            job.stop_reason, job.wants_checkpoint, job.allows = rest
        elif kind == "answer" and job.awaits is not None:
            assert rest[0] <= job.awaits, "a report is answered before it was made"
            job.awaits = None if rest[0] == job.awaits else job.awaits

    def begin(self) -> Job:
        """User code of the next trial in the queue begins."""
        assert self.job is None, "a worker runs one trial at a time"
        self.job = job = self.queue.popleft()
        self.post(["began", *job.who])
        return job

    def report(self, job: Job, metrics: Mapping[str, JsonValue], *, is_waiting: bool) -> None:
        """The trial reports, and may wait for an answer."""
        rows: list[JsonValue] = [list(metrics.values())]
        self.post(["rows", *job.who, job.reports, list(metrics), rows, is_waiting])
        job.reports += 1
        job.iteration += 1
        job.awaits = job.reports - 1 if is_waiting else None

    def begin_saving(self, job: Job) -> None:
        """The trial begins to store a checkpoint."""
        job.is_saving = True
        self.post(["busy", *job.who, False])

    def save(self, job: Job, uri: str, keys: list[JsonValue], *, is_waiting: bool) -> None:
        """The trial has stored its next checkpoint: it holds all reports so far."""
        job.is_saving = False
        self.post(["saved", *job.who, job.next_checkpoint, job.reports - 1, uri, job.iteration])
        job.next_checkpoint += 1
        if is_waiting:
            # The answer to a report without rows comes when the checkpoint's record is durable.
            self.post(["rows", *job.who, job.reports, keys, [], True])
            job.awaits = job.reports - 1

    def finish(
        self, how: End, failure: Mapping[str, JsonValue] | None = None, *, was_killed: bool = False
    ) -> Job:
        """The running trial ends."""
        job = self.job
        assert job is not None, "it runs no trial"
        self.job = None
        if how == "returned":
            self.post(["returned", *job.who])
        elif how == "stopped":
            self.post(["stopped", *job.who, was_killed, ""])
        else:
            assert failure is not None
            self.post(["failed", *job.who, dict(failure)])
        return job


def _job(fields: Any) -> Job:
    return Job(
        trial=fields["trial"],
        attempt=fields["attempt"],
        config=fields["config"],
        checkpoint=fields["checkpoint"],
        iteration=fields["iteration"],
        next_checkpoint=fields["next_checkpoint"],
    )
