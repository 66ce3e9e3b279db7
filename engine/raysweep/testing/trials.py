"""One trial in this process, without Ray: what a trainable reports, stores, and does when it is retried."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysweep import faultplan
from raysweep.errors import RaysweepError
from raysweep.worker.runner import Trainable, run_attempt
from raysweep.worker.session import Session, SweepPlace
from raysweep.worker.wire import Job, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRun:
    """One attempt: what it reported, from which report on it went on, and how it ended.

    `end`: `returned`, `stopped` or `failed`; `error`: then the exception's type, message and traceback.
    """

    reports: tuple[dict[str, Any], ...]
    resumed_from: int
    checkpoints: tuple[int, ...]
    end: str
    error: Mapping[str, Any] | None = None


def run_trial(
    trainable: Trainable,
    config: dict[str, Any],
    *,
    number: int = 0,
    seed: int = 0,
    max_failures: int = 0,
    stop_at: int | None = None,
) -> tuple[AttemptRun, ...]:
    """Run a trainable as a trial would, in this process: with `raysweep.report`, checkpoints and retries.

    Reports are turned into JSON, checkpoints stored, verified and restored as in a sweep. Faults of an active
    `FaultPlan` happen too, except those that would kill this process.

    Args:
        trainable: What a spec would name.
        config: Its config.
        number: The trial's number.
        seed: The trial's seed.
        max_failures: How often it is tried again, from its newest checkpoint, after an exception.
        stop_at: The trial is told to stop when it makes this report (from 1, over all attempts' iterations).

    Returns:
        The attempts, in order; an exception of the trainable is in its attempt's `error`, not raised.

    Raises:
        RaysweepError: The active plan has a fault that would kill or end this process.
    """
    _refuse_deadly_faults()
    attempts: list[AttemptRun] = []
    with tempfile.TemporaryDirectory(prefix="raysweep-trial-") as folder:
        place = SweepPlace(sweep_id="trial", storage_path=folder, resources={})
        uri, iteration, saved = None, 0, 0
        while True:
            job = Job(
                trial=number,
                attempt=len(attempts) + 1,
                config=config,
                seed=seed,
                checkpoint=uri,
                iteration=iteration,
                next_checkpoint=saved,
            )
            recorder = _Recorder(job, stop_at)
            run_attempt(trainable, job, place, recorder, recorder.take_session)
            attempts.append(recorder.result())
            if recorder.saved:
                _, uri, behind = recorder.saved[-1]
                iteration, saved = iteration + behind, recorder.saved[-1][0] + 1
            if attempts[-1].end != "failed" or len(attempts) > max_failures:
                return tuple(attempts)


class _Recorder:
    """Stands where the link to the controller would: keeps what is posted, answers what waits."""

    def __init__(self, job: Job, stop_at: int | None) -> None:
        self.saved: list[tuple[int, str, int]] = []
        self._job = job
        self._stop_at = stop_at
        self._rows: list[dict[str, Any]] = []
        self._end: Message = []
        self._session: Session | None = None

    def take_session(self, session: Session | None) -> None:
        self._session = session or self._session

    def post(self, message: Message) -> None:
        match message:
            case ["rows", _, _, index, keys, rows, is_waiting]:
                for row in rows:
                    self._take_row(keys, row)
                if is_waiting and self._session is not None:
                    self._session.answer(index + len(rows) - 1)
            case ["saved", _, _, number, report, uri, _]:
                self.saved.append((number, uri, report + 1))
            case ["returned" | "stopped" | "failed", *_]:
                self._end = message

    def post_now(self, message: Message) -> None:
        self.post(message)

    def post_row(
        self,
        trial: int,
        attempt: int,
        index: int,
        keys: tuple[str, ...],
        row: list[Any],
        packed: bytes | None = None,
    ) -> None:
        self._take_row(keys, row)

    def _take_row(self, keys: tuple[str, ...], row: list[Any]) -> None:
        self._rows.append(dict(zip(keys, row, strict=True)))
        if self._session is not None and self._job.iteration + len(self._rows) == self._stop_at:
            self._session.stop("scheduler")

    def result(self) -> AttemptRun:
        return AttemptRun(
            reports=tuple(self._rows),
            resumed_from=self._job.iteration,
            checkpoints=tuple(number for number, _, _ in self.saved),
            end=self._end[0],
            error=self._end[3] if self._end[0] == "failed" else None,
        )


def _refuse_deadly_faults() -> None:
    active = faultplan.current()
    deadly = (
        [str(fault) for fault in active.plan.faults if fault.action in ("kill", "exit")] if active else []
    )
    if deadly:
        raise RaysweepError(f"run_trial would be killed by {'; '.join(deadly)}: test these with run_sweep")
