"""A model of a worker: what it does with each command, and what it says; without processes, without time.

Commands under way to it wait in `inbox`, events under way from it in `outbox`, both in order. Who moves
things along decides what happens when: a test, an interleaving at a time, or the simulator's clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure

End = Literal["returned", "stopped", "failed"]


@dataclass(eq=False)
class Job:
    """One attempt at a worker. `iteration` counts the reports behind its state, resumed ones included."""

    start: cmd.StartTrial
    iteration: int
    next_checkpoint: int
    reports: int = 0
    stop_reason: str | None = None
    wants_checkpoint: bool = False
    awaits: int | None = None
    last: dict[str, JsonValue] = field(default_factory=dict)
    """Its last report."""
    newest: str | None = None
    """The checkpoint that user code gets if it asks for one now."""
    goes_back: bool = False
    """It has found its checkpoint damaged: whatever user code does now, it reports and gets nothing more."""

    @property
    def who(self) -> tuple[int, int]:
        """(trial, attempt)."""
        return self.start.trial, self.start.attempt

    @property
    def must_stop(self) -> bool:
        """Whether it ends at its next report; a trial that is asked for a checkpoint continues to that."""
        return self.goes_back or (self.stop_reason is not None and not self.wants_checkpoint)

    @property
    def is_waiting(self) -> bool:
        """Whether user code waits inside a report: for the answer, or for a stop."""
        return self.awaits is not None and self.stop_reason is None


@dataclass(eq=False)
class Worker:
    """One slot's worker."""

    slot: int
    is_up: bool = False
    is_lost: bool = False
    queue: list[Job] = field(default_factory=list)
    job: Job | None = None
    inbox: deque[cmd.Command] = field(default_factory=deque)
    outbox: deque[ev.Event] = field(default_factory=deque)

    def open(self, at: float, node: str) -> None:
        """It comes up."""
        self.is_up = True
        self.outbox.append(ev.SlotOpened(at=at, slot=self.slot, node=node))

    def fail(self, at: float, failure: Failure, node: str = "") -> None:
        """It does not come up; or another one does not, that was to come in its place."""
        self._vanish()
        self.outbox.append(ev.SlotFailed(at=at, slot=self.slot, failure=failure, node=node))

    def lose(self, at: float, failure: Failure, *, was_handed: bool = True) -> None:
        """It dies, with what it runs; what it said before is still under way."""
        self._vanish()
        self.outbox.append(ev.SlotLost(at=at, slot=self.slot, failure=failure, was_handed=was_handed))

    def _vanish(self) -> None:
        self.is_lost = True
        self.job, self.queue = None, []
        self.inbox.clear()

    def take(self, at: float) -> cmd.Command:
        """The next command arrives."""
        command = self.inbox.popleft()
        if self.is_lost:
            return command  # nobody is there to take it
        job = self.job
        match command:
            case cmd.StartTrial():
                job = Job(command, command.iteration, command.next_checkpoint, newest=command.checkpoint)
                self.queue.append(job)
            case cmd.StopTrial():
                if job is not None and job.who == (command.trial, command.attempt):
                    job.stop_reason, job.wants_checkpoint = command.reason, command.wants_checkpoint
            case cmd.RecallTrials():
                taken = tuple(job.start.trial for job in self.queue if job.start.trial in command.trials)
                self.queue = [job for job in self.queue if job.start.trial not in command.trials]
                self.outbox.append(ev.TrialsRecalled(at=at, slot=self.slot, trials=taken))
            case cmd.AnswerReport():
                if job is not None and job.who == (command.trial, command.attempt) and job.awaits is not None:
                    assert command.report <= job.awaits, "a report is answered before it was made"
                    job.awaits = None if command.report == job.awaits else job.awaits
        return command

    def begin(self, at: float) -> Job:
        """User code of the next trial in the queue begins."""
        assert self.job is None, "a worker runs one trial at a time"
        self.job = job = self.queue.pop(0)
        self.outbox.append(ev.TrialStarted(at=at, trial=job.who[0], attempt=job.who[1]))
        return job

    def report(
        self,
        at: float,
        keys: tuple[str, ...],
        rows: Sequence[Sequence[JsonValue]],
        *,
        is_waiting: bool = False,
    ) -> None:
        """The running trial makes a report for each row, and may wait for an answer to the last."""
        job = self._running()
        assert not job.goes_back, "an attempt that goes back reports nothing"
        trial, attempt = job.who
        self.outbox.append(
            ev.TrialReported(
                at=at,
                trial=trial,
                attempt=attempt,
                first=job.reports,
                keys=keys,
                rows=tuple(list(row) for row in rows),
                is_waiting=is_waiting,
            )
        )
        job.reports += len(rows)
        job.iteration += len(rows)
        job.last = dict(zip(keys, rows[-1], strict=True)) if rows else job.last
        if is_waiting:
            job.awaits = job.reports - 1

    def save(self, at: float, uri: str, *, rank: float | None = None) -> None:
        """The running trial has stored its next checkpoint at `uri`: it holds all reports so far."""
        job = self._running()
        trial, attempt = job.who
        self.outbox.append(
            ev.CheckpointCommitted(
                at=at,
                trial=trial,
                attempt=attempt,
                number=job.next_checkpoint,
                report=job.reports - 1,
                uri=uri,
                size_bytes=job.iteration,
                rank=rank,
            )
        )
        job.next_checkpoint += 1
        job.newest = uri

    def find_damage(self, at: float) -> None:
        """The running trial opens the checkpoint that it was to resume from, and finds it damaged."""
        job = self._running()
        assert job.newest is not None
        trial, attempt = job.who
        self.outbox.append(
            ev.CheckpointDamaged(at=at, trial=trial, attempt=attempt, uri=job.newest, problem="one bit")
        )
        job.goes_back, job.newest = True, None

    def finish(
        self, at: float, how: End, failure: Failure | None = None, *, was_killed: bool = False
    ) -> None:
        """The running trial ends."""
        trial, attempt = self._running().who
        self.job = None
        if how == "returned":
            self.outbox.append(ev.TrialReturned(at=at, trial=trial, attempt=attempt))
        elif how == "stopped":
            self.outbox.append(ev.TrialStopped(at=at, trial=trial, attempt=attempt, was_killed=was_killed))
        else:
            assert failure is not None
            self.outbox.append(ev.TrialFailed(at=at, trial=trial, attempt=attempt, failure=failure))

    def _running(self) -> Job:
        assert self.job is not None, f"worker {self.slot} runs no trial"
        return self.job
