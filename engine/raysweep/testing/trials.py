"""One trial in this process, without Ray: what a trainable reports, stores, and does when it is retried."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec.structs import asdict, replace

from raysweep import faultplan
from raysweep import messages as msg
from raysweep.core.seeds import trial_seed
from raysweep.errors import RaysweepError
from raysweep.messages import Answer, End, FromWorker, Job, Stop
from raysweep.worker.checking import check_trainable
from raysweep.worker.link import Take
from raysweep.worker.process.leftovers import Leftovers
from raysweep.worker.runner import Trainable, run_attempt
from raysweep.worker.setup import as_function, close_trainable
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import ClassOptions, SweepPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRun:
    """One attempt: what it reported, from which report on it continued, and how it ended.

    `end`: `returned`, `stopped` or `failed`; `error`: then the exception's type, message and traceback.
    """

    reports: tuple[dict[str, Any], ...]
    resumed_from: int
    checkpoints: tuple[int, ...]
    end: str
    error: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    """The notes of it that a sweep's outcome would have."""


def run_trial(
    trainable: Trainable,
    config: dict[str, Any],
    *,
    number: int = 0,
    seed: int | None = None,
    max_failures: int = 0,
    stop_at: int | None = None,
    metric: str = "",
    tune: Mapping[str, Any] | None = None,
) -> tuple[AttemptRun, ...]:
    """Run a trainable as a trial would, in this process: with `raysweep.report`, checkpoints and retries.

    Reports are turned into JSON, checkpoints stored, verified and restored as in a sweep. Faults of an active
    `FaultPlan` happen too, except those that would kill this process.

    Args:
        trainable: What a spec would name.
        config: Its config.
        number: The trial's number.
        seed: The trial's seed, below 2**31. Default: that of this trial of a sweep with seed 0.
        max_failures: How often it is tried again, from its newest checkpoint, after an exception.
        stop_at: The trial is told to stop when it makes this report (from 1, over all attempts' iterations).
        metric: The spec's metric: what a number that the trainable returns is reported as.
        tune: For a class of Ray Tune, the spec's field `tune`.

    Returns:
        The attempts, in order; an exception of the trainable is in its attempt's `error`, not raised.

    Raises:
        TrainableImportError: It is an async function or a generator, or does not take a config.
        RaysweepError: The active plan has a fault that would kill or end this process.
    """
    _refuse_deadly_faults()
    check_trainable(trainable)
    recorder = _Recorder(stop_at)
    shell = WorkerShell(recorder)
    recorder.listen(shell.take, shell.lose_link)
    with tempfile.TemporaryDirectory(prefix="raysweep-trial-") as folder:
        place = SweepPlace(
            sweep_id="trial",
            storage_path=folder,
            resources={},
            metric=metric,
            tune=ClassOptions(**(tune or {})),
        )
        function = as_function(trainable, place)
        leftovers = Leftovers(can_replace=False)
        seed = trial_seed(0, number) if seed is None else seed
        job = Job(trial=number, attempt=1, config=config, seed=seed)
        while True:
            recorder.hand(job)
            begun = shell.next_job()
            assert begun is job
            run_attempt(function, job, place, shell, leftovers=leftovers)
            attempts = recorder.attempts
            error = attempts[-1].error
            is_final = error is None or error["origin"] == "infeasible"
            if is_final or len(attempts) > max_failures:
                close_trainable(function)
                return tuple(attempts)
            job = replace(job, attempt=job.attempt + 1)
            if recorder.saved:
                saved, uri, behind = recorder.saved[-1]
                iteration = job.iteration + behind
                job = replace(job, checkpoint=uri, iteration=iteration, next_checkpoint=saved + 1)


_ENDS: Final[dict[type[End], Literal["returned", "stopped", "failed"]]] = {
    msg.TrialReturned: "returned",
    msg.TrialStopped: "stopped",
    msg.TrialFailed: "failed",
}


class RecordingLink(ABC):
    """The `Link` of a worker in this process, without a controller: it answers each report that waits.

    A subclass keeps the reports (`keep_row`) and the other messages (`keep`).
    """

    def __init__(self) -> None:
        self._take: Take = lambda messages: None

    def listen(self, take: Take, on_gone: Callable[[], None]) -> None:
        self._take = take

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        if not isinstance(message, msg.TrialReported):
            self.keep(message)
            return
        for row in message.rows:
            self.keep_row(message.trial, dict(zip(message.keys, row, strict=True)))
        if message.is_waiting:
            self._take([Answer(*message.who, report=message.first + len(message.rows) - 1)])

    def send_now(self, message: FromWorker) -> None:
        self.send(message)

    def send_row(
        self,
        trial: int,
        attempt: int,
        index: int,
        keys: tuple[str, ...],
        row: list[Any],
        packed: bytes | None = None,
    ) -> None:
        self.keep_row(trial, dict(zip(keys, row, strict=True)))

    def close(self, timeout_s: float | None = 10.0) -> None:  # noqa: B027  nothing is queued here
        pass

    @abstractmethod
    def keep_row(self, trial: int, row: dict[str, Any]) -> None:
        """Keep the metrics of a report."""

    @abstractmethod
    def keep(self, message: FromWorker) -> None:
        """Keep any other message."""


class _Recorder(RecordingLink):
    """Keeps the attempts of one trial, and stops it at a report."""

    def __init__(self, stop_at: int | None) -> None:
        super().__init__()
        self.attempts: list[AttemptRun] = []
        self.saved: list[tuple[int, str, int]] = []
        self._notes: list[str] = []
        self._stop_at = stop_at
        self._rows: list[dict[str, Any]] = []

    def hand(self, job: Job) -> None:
        """Have the attempt run."""
        self._job = job
        self._rows, self.saved, self._notes = [], [], []
        self._take([job])

    def keep(self, message: FromWorker) -> None:
        match message:
            case msg.CheckpointCommitted(number=number, report=report, uri=uri):
                self.saved.append((number, uri, report + 1))
            case msg.TrialNoted(text=text):
                self._notes.append(text)
            case msg.TrialReturned() | msg.TrialStopped() | msg.TrialFailed():
                self._end(message)

    def keep_row(self, trial: int, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if self._job.iteration + len(self._rows) == self._stop_at:
            self._take([Stop(*self._job.who, reason="scheduler")])

    def _end(self, end: End) -> None:
        self.attempts.append(
            AttemptRun(
                reports=tuple(self._rows),
                resumed_from=self._job.iteration,
                checkpoints=tuple(number for number, _, _ in self.saved),
                end=_ENDS[type(end)],
                error=asdict(end.failure) if isinstance(end, msg.TrialFailed) else None,
                notes=tuple(dict.fromkeys(self._notes)),
            )
        )


def _refuse_deadly_faults() -> None:
    active = faultplan.current()
    deadly = (
        [str(fault) for fault in active.plan.faults if fault.action in ("kill", "exit")] if active else []
    )
    if deadly:
        raise RaysweepError(f"run_trial would be killed by {'; '.join(deadly)}: test these with run_sweep")
