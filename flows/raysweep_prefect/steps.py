"""One step of a pipeline as Prefect shows it: followed beside the wait, its end an event and an asset."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from prefect.exceptions import MissingContextError
from prefect.logging.loggers import get_logger, get_run_logger

from raysweep.errors import ClusterAuthError, RaysweepError, SweepInterrupted
from raysweep.jobs.attach import RunningJob
from raysweep.jobs.sync import run_sync
from raysweep.outcome import TrainOutcome
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.view import Outcome
from raysweep.step import Step, brief, cancel_anyway, details_of
from raysweep_prefect.cancelling import leave_cancelled
from raysweep_prefect.clusters import Target
from raysweep_prefect.following import Follower, emit_end, show_carried
from raysweep_prefect.identity import Asker, find_asker
from raysweep_prefect.listening import tell_listeners
from raysweep_prefect.output import outlive_readers
from raysweep_prefect.records import note_job
from raysweep_prefect.signals import asset_uri, materialize, resource_of

Logger = logging.Logger | logging.LoggerAdapter[Any]


def run_step(step: Step, *, made_from: tuple[str, str] = ("", "")) -> Outcome:
    """Run a step, follow it, and say in Prefect how it ended.

    Args:
        step: The step.
        made_from: Name and id of the sweep that a training's config comes from.

    Raises:
        SweepFailedError, TrainingFailedError: It ended without a result that may be used.
        RaysweepError: As `raysweep.run_sweep` and `raysweep.run_training`; see `retryable`.
        RunCancelledError: A person cancelled the flow run, and it is Cancelled.
    """
    outlive_readers()
    logger, run = run_logger(), step.request.run
    source = resource_of("sweep", made_from[1])
    try:
        with interruptible():
            outcome = _run(step, logger)
        usable = step.finish(outcome)
    except RaysweepError as error:
        details = details_of(error)
        if details:
            logger.error("%s", details)
        if not error.retryable:
            end = getattr(error, "outcome", None)
            status = "cancelled" if getattr(end, "status", "") == "cancelled" else "failed"
            end = end if isinstance(end, Outcome) else None
            payload = (brief(end) if end is not None else {"run_id": run.id}) | {"error": str(error)}
            emit_end(run.kind, run.name, run.id, status, payload, end=end, made_from=source)
            if status == "cancelled":
                leave_cancelled(find_asker(), str(error))
        raise
    logger.info("%s %s: %s", run.kind, run.id, getattr(usable, "why", "") or usable.status)
    payload = brief(usable)
    if isinstance(usable, TrainOutcome):
        show_carried(usable)
    emit_end(run.kind, run.name, run.id, usable.status, payload, end=usable, made_from=source)
    assets = (asset_uri("sweep", made_from[0]),) if made_from[0] else ()
    materialize(run.kind, run.name, payload, made_from=assets)
    return usable


def _run(step: Step, logger: Logger) -> Outcome:
    """Run it; where the cluster refuses a token that was changed since, continue with the new one."""
    announced: list[RunningJob] = []

    def announce(job: RunningJob) -> None:
        announced.append(job)
        _note(asker, job, place=step.place, logger=logger)

    asker = find_asker()
    while True:
        try:
            return step.run(beside=partial(_following, step, logger=logger), announce=announce)
        except CancelledError:
            for job in announced[-1:]:
                _stop_at_once(step, job, logger)
            raise
        except ClusterAuthError:
            place = step.place.renewed() if isinstance(step.place, Target) else None
            if place is None:
                raise
            logger.warning("%s: its token has changed; continuing with the new one", step.request.run.id)
            step = replace(step, place=place)


def run_logger() -> Logger:
    """That of the task run; outside of one, a plain one."""
    try:
        return get_run_logger()
    except MissingContextError:
        return get_logger("raysweep")


@contextmanager
def interruptible() -> Iterator[None]:
    """An interruption is no failure of the task: Prefect sees it as what it is, and nothing retries it."""
    try:
        yield
    except SweepInterrupted as error:
        raise KeyboardInterrupt(str(error)) from None


def _note(asker: Asker | None, job: RunningJob, *, place: object, logger: Logger) -> None:
    """Before the job is submitted: a cancel of the flow run at that moment finds its name."""
    if asker is None or not job.job_id:
        return
    try:
        note_job(asker, job, place.block if isinstance(place, Target) else "")
    except Exception as error:  # noqa: BLE001  the sweep runs; without the note only its lease ends it
        logger.warning("job %s could not be noted at the flow run: %s", job.job_id, error)


@contextmanager
def _following(
    step: Step, job: RunningJob | None, *, logger: Logger
) -> Iterator[Callable[[Any], None] | None]:
    """The helpers beside the wait: they show its course, and see if a person ended the flow run."""
    asker, run = find_asker(), step.request.run
    if job is not None:
        logger.info("%s %s: %s job %s", job.kind, job.run_id, job.how, job.job_id or "(none)")
    # A training in this process tells of its reports, which nothing here shows; all others, of heartbeats.
    is_told = job is not None or run.kind == "sweep"
    if asker is None:
        yield tell_listeners if is_told else None
        return

    def stop(reason: str) -> None:
        if job is not None:
            run_sync(lambda: cancel_anyway(job, to=step.connect, reason=reason, by="Prefect"))
        else:
            step.view.ask_to_cancel(reason, "Prefect")

    with Follower(
        asker,
        name=run.name,
        run_id=run.id,
        reader=SweepReader(step.request.spec.storage_path, run.id) if run.kind == "sweep" else None,
        uri=step.view.uri,
        logger=logger,
        stop=stop if is_told else None,
    ) as follower:
        follower.began(job)
        yield follower if is_told else None


def _stop_at_once(step: Step, job: RunningJob, logger: Logger) -> None:
    """At the `timeout_seconds` of its flow or task, which Prefect raises in the wait."""
    reason = "timeout_seconds of its flow or task is over"
    logger.warning("%s: stopping %s", reason, job.run_id)
    try:
        run_sync(lambda: cancel_anyway(job, to=step.connect, reason=reason, by="Prefect"))
    except RaysweepError as error:
        logger.warning("job %s could not be stopped: %s; its lease ends it", job.job_id, error)
