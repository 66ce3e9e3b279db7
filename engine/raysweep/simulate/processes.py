"""A worker's process without time: the machine that real workers have, and a model of the trial that it runs.

The code that moves it along decides what happens when.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from raysweep import messages as msg
from raysweep.simulate.nodes import Node
from raysweep.worker.machine import Begin, Say, Tell, WorkerMachine
from raysweep.worker.rungs import RungWatch


@dataclass(eq=False, kw_only=True)
class Job:
    """One attempt in a process. `iteration` counts the reports behind its state, resumed ones included.

    `rungs`: where its reports wait for what is decided, if there is any such place.
    """

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
    rungs: RungWatch | None = None
    unjudged: deque[int] = field(default_factory=deque)
    """Its reports whose checkpoints are evaluated, until they are answered."""

    @property
    def who(self) -> tuple[int, int]:
        """(trial, attempt)."""
        return self.trial, self.attempt

    @property
    def is_waiting(self) -> bool:
        """True if user code waits inside a report: for the answer, or for a stop."""
        return self.awaits is not None and (self.stop_reason is None or self.wants_checkpoint)

    def may_report(self, *, has_checkpoint: bool) -> bool:
        """True if its next report is taken; else it ends there."""
        if self.stop_reason is None or self.wants_checkpoint or self.allows == "report":
            return True
        return has_checkpoint and self.allows != "nothing"


class Process:
    """One worker's process. `post` sends what it says; `job` is the trial whose user code runs."""

    def __init__(
        self, post: Callable[[msg.FromWorker], None], *, is_forked: bool, max_trials: int | None = None
    ) -> None:
        self.job: Job | None = None
        self.next: msg.Job | None = None
        """The job that is to begin."""
        self._post = post
        self._is_forked = is_forked
        self._machine = WorkerMachine(is_forked=is_forked, max_trials=max_trials)

    def take(self, message: msg.ToWorker) -> None:
        """A message arrives."""
        self._machine.take(message)
        self._act()

    def _act(self) -> None:
        actions = self._machine.actions
        while actions:
            match actions.popleft():
                case Say(message=message):
                    self._post(message)
                case Begin(job=job):
                    self.next = job
                case Tell(order=order):
                    self._tell(order)
                case _:
                    pass  # the code that moves it along ends it

    def _tell(self, order: msg.Order) -> None:
        job = self.job
        assert job is not None, "an order reaches an attempt that does not run"
        match order:
            case msg.Stop():
                job.stop_reason, job.wants_checkpoint = order.reason, order.wants_checkpoint
                job.allows = order.allows
            case msg.Answer(report=report):
                while job.unjudged and job.unjudged[0] <= report:
                    job.unjudged.popleft()
                if job.awaits is not None:
                    assert report < job.reports, "a report is answered before it was made"
                    job.awaits = None if report >= job.awaits else job.awaits

    def begin(self) -> Job:
        """User code of the next trial begins."""
        asked, self.next = self.next, None
        assert self.job is None, "a worker runs one trial at a time"
        assert asked is not None, "nothing is to begin"
        self.job = job = _job(asked)
        self._machine.begin()
        self._machine.reach()
        self._act()
        return job

    def report(
        self, job: Job, metrics: Mapping[str, JsonValue], *, is_waiting: bool, is_evaluated: bool = False
    ) -> None:
        """The trial reports, and may wait for an answer; `is_evaluated`: so is its checkpoint."""
        if is_evaluated:
            validation = msg.Validation(call=b"")  # regarded only where trials say by what
            self._post(msg.Upcoming(*job.who, report=job.reports, validation=validation))
            job.unjudged.append(job.reports)
        rows = [[*metrics.values()]]
        self._post_rows(job, [*metrics], rows, is_waiting=is_waiting or is_evaluated)
        job.reports += 1
        job.iteration += 1
        job.awaits = job.reports - 1 if is_waiting else None

    def begin_saving(self, job: Job) -> None:
        """The trial begins to store a checkpoint."""
        job.is_saving = True
        self._post(msg.TrialBusy(*job.who, is_over=False))

    def save(
        self, job: Job, uri: str, keys: list[str], *, is_waiting: bool, rank: float | None = None
    ) -> None:
        """The trial has stored its next checkpoint, which holds all reports so far.

        `rank`: as in `CheckpointCommitted`.
        """
        job.is_saving = False
        self._post(
            msg.CheckpointCommitted(
                *job.who, job.next_checkpoint, job.reports - 1, uri, size_bytes=job.iteration, rank=rank
            )
        )
        job.next_checkpoint += 1
        if is_waiting:
            # The answer to a report without rows comes when the checkpoint's record is durable.
            self._post_rows(job, keys, [], is_waiting=True)
            job.awaits = job.reports - 1

    def _post_rows(self, job: Job, keys: list[str], rows: list[list[JsonValue]], *, is_waiting: bool) -> None:
        self._post(msg.TrialReported(*job.who, job.reports, tuple(keys), rows, is_waiting))

    def finish(self, failure: msg.FailureFacts | None = None, *, is_stopped: bool = False) -> Job:
        """The running trial ends: it returns, or stops, or fails."""
        job = self._end_job()
        if failure is not None:
            self._machine.end(msg.TrialFailed(*job.who, failure=failure))
        else:
            self._machine.end(msg.TrialStopped(*job.who) if is_stopped else msg.TrialReturned(*job.who))
        self._act()
        return job

    def kill(self) -> Job:
        """The running trial's own process is killed, as it was asked to be."""
        job = self._end_job()
        self._machine.die(-signal.SIGKILL)
        self._act()
        return job

    def exceed(self, failure: msg.FailureFacts) -> Job:
        """The running trial is ended for the memory that it holds."""
        job = self._end_job()
        self._machine.exceed(failure)
        if self._is_forked:
            self._machine.die(-signal.SIGKILL)
        self._act()
        return job

    def _end_job(self) -> Job:
        job, self.job = self.job, None
        assert job is not None, "it runs no trial"
        return job


@dataclass(eq=False, kw_only=True)
class Actor:
    """One actor of Ray's. `is_linked`: what it says still arrives; `is_up`: its process has connected."""

    number: int
    group: int
    node: Node | None = None
    process: Process | None = None
    is_alive: bool = True
    is_up: bool = False
    is_linked: bool = False
    sent_at: dict[str, float] = field(default_factory=dict)


def _job(asked: msg.Job) -> Job:
    return Job(
        trial=asked.trial,
        attempt=asked.attempt,
        config=asked.config,
        checkpoint=asked.checkpoint,
        iteration=asked.iteration,
        next_checkpoint=asked.next_checkpoint,
    )
