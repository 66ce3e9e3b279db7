"""One step of a night: a sweep or a training, here or as a job, shown and followed in Prefect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from prefect.exceptions import MissingContextError
from prefect.logging.loggers import get_logger, get_run_logger

import raysweep as rs
from raysweep.brief import brief
from raysweep.errors import RaysweepError
from raysweep.jobs.attach import RunningJob
from raysweep.jobs.completion import complete, details_of
from raysweep.jobs.sync import Cluster
from raysweep.runs.reader import SweepReader
from raysweep.runs.view import RunView
from raysweep.spec import AnyRequest, RunRequest
from raysweep_prefect.clusters import Target
from raysweep_prefect.following import Follower, emit_end
from raysweep_prefect.identity import Asker, find_asker
from raysweep_prefect.listening import tell_listeners
from raysweep_prefect.parameters import JobSettings
from raysweep_prefect.records import note_job
from raysweep_prefect.signals import materialize

SpecT = TypeVar("SpecT", rs.SweepSpec, rs.TrainSpec)
Logger = logging.Logger | logging.LoggerAdapter[Any]
Outcome = rs.SweepOutcome | rs.TrainOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How one step is run."""

    target: Target
    settings: JobSettings
    key: str | None
    accept_partial: bool = True
    resume_cancelled: bool = False

    def run(self, spec: rs.SweepSpec | rs.TrainSpec, *, made_from: str = "") -> Outcome:
        """Run it, follow it, and say in Prefect how it ended.

        Args:
            spec: What to run.
            made_from: The name of the sweep that a training's config comes from.

        Raises:
            SweepFailedError, TrainingFailedError: It ended without a result that may be used.
            RaysweepError: As `raysweep.run_sweep` and `raysweep.run_training`; see `retryable`.
        """
        logger = run_logger()
        request = RunRequest.of(spec, self.key)
        kind = request.run.kind
        try:
            with interruptible():
                outcome = self._run(request, logger)
            usable = complete(outcome, accept_partial=self.accept_partial)
        except RaysweepError as error:
            details = details_of(error)
            if details:
                logger.error("%s", details)
            if not error.retryable:
                end = getattr(error, "outcome", None)
                status = "cancelled" if getattr(end, "status", "") == "cancelled" else "failed"
                payload = brief(end) if isinstance(end, Outcome) else {"run_id": request.run.id}
                emit_end(kind, spec.name, request.run.id, status, payload | {"error": str(error)})
            raise
        logger.info("%s %s: %s", kind, request.run.id, getattr(usable, "why", "") or usable.status)
        payload = brief(usable)
        emit_end(kind, spec.name, request.run.id, usable.status, payload)
        materialize(kind, spec.name, payload, made_from=made_from)
        return usable

    def _run(self, request: AnyRequest, logger: Logger) -> Outcome:
        asker = find_asker()
        if self.target.connection is not None:
            return self._run_job(request, asker, logger)

        def stop(reason: str) -> None:
            _view(request).ask_to_cancel(reason, "Prefect")

        with _following(asker, request, logger, stop if request.run.kind == "sweep" else None) as follower:
            if follower is not None:
                follower.began(None)
            take = follower if follower is not None else tell_listeners
            if isinstance(request.spec, rs.SweepSpec):
                return rs.run_sweep(
                    request.spec,
                    key=request.run.key,
                    address=self.target.address,
                    on_progress=take,
                    resume_cancelled=self.resume_cancelled,
                )
            return rs.run_training(request.spec, key=request.run.key, address=self.target.address)

    def _run_job(self, request: AnyRequest, asker: Asker | None, logger: Logger) -> Outcome:
        assert self.target.connection is not None
        cluster = Cluster(self.target.connection)
        options = self.settings.options()
        if self.resume_cancelled:
            options = replace(options, on_cancelled="resume")
        job = cluster.submit(request, options=options)
        logger.info("%s %s: %s job %s", job.kind, job.run_id, job.how, job.job_id or "(none)")
        _note(asker, job, self.target, logger)

        def stop(reason: str) -> None:
            cluster.cancel(job, reason=reason)

        with _following(asker, request, logger, stop) as follower:
            if follower is not None:
                follower.began(job)
            take = follower if follower is not None else tell_listeners
            return cluster.wait(job, on_progress=take, lease_ttl_s=options.lease_ttl_s)


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
    except rs.SweepInterrupted as error:
        raise KeyboardInterrupt(str(error)) from None


def _note(asker: Asker | None, job: RunningJob, target: Target, logger: Logger) -> None:
    if asker is None or not job.job_id:
        return
    try:
        note_job(asker, job, target.block)
    except Exception as error:  # noqa: BLE001  the sweep runs; without the note only its lease ends it
        logger.warning("job %s could not be noted at the flow run: %s", job.job_id, error)


def _view(request: AnyRequest) -> RunView:
    return RunView(request.run.kind, request.spec.storage_path, request.run.id)


@contextmanager
def _following(
    asker: Asker | None, request: AnyRequest, logger: Logger, stop: Callable[[str], Any] | None
) -> Iterator[Follower | None]:
    if asker is None:
        yield None
        return
    view = _view(request)
    reader = SweepReader(request.spec.storage_path, request.run.id) if request.run.kind == "sweep" else None
    with Follower(
        asker,
        name=request.run.name,
        run_id=request.run.id,
        reader=reader,
        uri=view.uri,
        logger=logger,
        stop=stop,
    ) as follower:
        yield follower
