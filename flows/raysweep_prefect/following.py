"""A thread beside the task that waits for a sweep: shows how it stands, and sees whether a person ended it.

All that speaks to the Prefect server is here, off the path of the sweep: a server that is slow, restarts or
is gone costs pictures, never the sweep.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import orjson
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.logging.loggers import get_logger

from raysweep.errors import RaysweepError
from raysweep.jobs.attach import RunningJob
from raysweep.outcome import SweepOutcome, SweepProgress, TrainOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.outcome.ranking import is_better
from raysweep.outcome.showing.formatting import show_progress
from raysweep.runs.reading.reader import SweepReader
from raysweep_prefect.artifacts import (
    artifact_key,
    carried_text,
    escape,
    links_text,
    number_in_flow,
    report_text,
    table_text,
)
from raysweep_prefect.identity import Asker, find_asker
from raysweep_prefect.listening import tell_listeners
from raysweep_prefect.output import drop_unread
from raysweep_prefect.signals import emit

UPDATE_S: Final = 5.0
"""Artifacts are written not more often than this."""
TIMEOUT_S: Final = 20.0
LAST_WORD_S: Final = 30.0
"""The longest wait of a step for a server that does not take its last pictures."""
_ENDED_BY_USER: Final = frozenset(
    {StateType.CANCELLING, StateType.CANCELLED, StateType.FAILED, StateType.COMPLETED}
)


class Follower:
    """Called with each progress; a context manager around the wait.

    Args:
        asker: The flow run.
        name: The spec's name.
        run_id: The sweep's id, or the training run's.
        reader: Reads the sweep's status; None for a training.
        uri: Where it is stored.
        logger: The task run's.
        stop: Stops what is followed; called, on this object's thread, when a person has ended the flow run.
    """

    def __init__(
        self,
        asker: Asker,
        *,
        name: str,
        run_id: str,
        reader: SweepReader | None,
        uri: str,
        logger: logging.Logger | logging.LoggerAdapter[Any],
        stop: Callable[[str], Any] | None = None,
    ) -> None:
        self._asker = asker
        self._name = name
        self._run_id = run_id
        self._number = number_in_flow(asker.owner_id, name, run_id)
        self._kind = "sweep" if reader is not None else "train"
        self._reader = reader
        self._uri = uri
        self._logger = logger
        self._stop = stop
        self._job: RunningJob | None = None
        self._progress: SweepProgress | None = None
        self._shown: dict[str, tuple[UUID, bytes]] = {}
        self._best: float | None = None
        self._is_quiet = False
        self._ended = threading.Event()
        # The artifacts' events belong to the task run: the thread sees the task's context.
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._follow,), name="raysweep-prefect", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        is_killed = error is not None and not isinstance(error, Exception)
        # Who is being killed has no time for pictures.
        self._thread.join(timeout=0.0 if is_killed else LAST_WORD_S)

    def __call__(self, progress: SweepProgress) -> None:
        """Take the newest progress; any thread may call it, and nothing here waits for the server."""
        self._progress = progress
        tell_listeners(progress)

    def began(self, job: RunningJob | None) -> None:
        """It is on its way; as this job, if it is one."""
        self._job = job
        number = {"job_id": job.job_id, "address": job.address, "how": job.how} if job is not None else {}
        payload = {"run_id": self._run_id, "name": self._name, "uri": self._uri, **number}
        emit(self._kind, self._run_id, "started", payload, name=self._name)

    # --- the thread

    def _follow(self) -> None:
        while True:
            is_last = self._ended.wait(UPDATE_S if self._shown else 1.0)
            drop_unread()
            try:
                # With settings of its own it is another client than the task's, which ends with the task.
                with get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True) as client:
                    self._show(client, is_last=is_last)
                    if not is_last:
                        self._look(client)
                self._is_quiet = False
            except Exception as error:  # noqa: BLE001  the server, or the storage: neither is worth the sweep
                self._note(error)
            if is_last:
                return

    def _note(self, error: Exception) -> None:
        if not self._is_quiet:
            self._is_quiet = True
            self._logger.warning("%s %s is not shown for now: %s", self._kind, self._run_id, error)

    def _look(self, client: SyncPrefectClient) -> None:
        """Stop it if a person has ended the flow run; a crash is no person."""
        if self._stop is None:
            return
        now = client.read_flow_run(self._asker.owner_id)
        if is_ended_by_user(now, self._asker.attempt):
            self._logger.warning("The flow run was set to %s: stopping %s", now.state_name, self._run_id)
            self._stop(f"flow run {now.name!r} was set to {now.state_name}")
            self._stop = None  # and not before: what fails is tried again

    # --- what is shown

    def _show(self, client: SyncPrefectClient, *, is_last: bool) -> None:
        progress = self._progress
        if progress is not None and self._kind == "sweep":
            self._put(
                client, "progress", "progress", 100 * progress.share, escape(show_progress(progress)[:500])
            )
        links = links_text(self._job, self._uri, is_sweep=self._kind == "sweep")
        self._put(client, "links", "markdown", links, "Where to look")
        if self._reader is None:
            return
        with suppress(RaysweepError):
            status = self._reader.read(is_fresh=is_last)
            if status is None:
                return
            table = table_text(status)
            if table:
                self._put(client, "leaderboard", "table", table, f"The best trials of {escape(self._name)}")
            self._put(client, "report", "markdown", report_text(status), f"Report of {status.run_id}")
            best = status.best
            if best is not None and is_better(best.score, self._best, status.mode):
                self._best = best.score
                shown = best.model_dump(mode="json", include=_BEST_FIELDS)
                payload = {"metric": status.metric, "mode": status.mode, "uri": status.uri, "best": shown}
                emit("sweep", self._run_id, "new_best", payload, name=self._name)
            if is_last and status.has_ended:
                self._put(client, "progress", "progress", 100.0, f"{escape(self._name)}: {status.status}")

    def _put(self, client: SyncPrefectClient, kind: str, type_: str, data: Any, title: str) -> None:
        """Create it, or write it anew in place: a version every 5 s, all night, would fill the database."""
        fingerprint = orjson.dumps([data, title])
        known = self._shown.get(kind)
        if known is not None and known[1] == fingerprint:
            return
        if known is not None:
            client.update_artifact(known[0], ArtifactUpdate(data=data, description=title))
            self._shown[kind] = known[0], fingerprint
            return
        made = client.create_artifact(
            ArtifactCreate(
                key=artifact_key(self._name, kind, self._number),
                type=type_,
                data=data,
                description=title,
                flow_run_id=self._asker.flow_run_id,
                task_run_id=self._asker.task_run_id,
            )
        )
        self._shown[kind] = made.id, fingerprint


_BEST_FIELDS: Final = {"trial_id", "score", "config", "checkpoint_uri"}


def show_report(outcome: SweepOutcome) -> None:
    """Write the report of a sweep that has ended, as an artifact of this task run: with its gate's verdict.

    Outside of a flow, and where the server does not answer, nothing is written.
    """
    if find_asker() is not None:
        text = report_text(status_of_outcome(outcome, now=time.time()))
        _show("report", outcome.name, outcome.sweep_id, text, f"Report of {outcome.sweep_id}")


def show_carried(outcome: TrainOutcome) -> None:
    """Write how a training's config was carried, as an artifact of this task run; else as `show_report`."""
    if outcome.carried is not None:
        text = carried_text(outcome.name, outcome.carried)
        _show("transfer", outcome.name, outcome.run_id, text, f"Transfer to {outcome.run_id}")


def _show(kind: str, name: str, run_id: str, text: str, description: str) -> None:
    asker = find_asker()
    if asker is None:
        return
    made = ArtifactCreate(
        key=artifact_key(name, kind, number_in_flow(asker.owner_id, name, run_id)),
        type="markdown",
        data=text,
        description=description,
        flow_run_id=asker.flow_run_id,
        task_run_id=asker.task_run_id,
    )
    try:
        with get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True) as client:
            client.create_artifact(made)
    except Exception as error:  # noqa: BLE001  the outcome is stored; only its picture is missing
        get_logger("raysweep").warning("%s: the artifact is not shown: %s", description, error)


def is_ended_by_user(now: FlowRun, attempt: int) -> bool:
    """True if a user, not this attempt itself, ended the flow run that this attempt belongs to.

    A crash does not count: that is what a worker says that has lost sight of a process.
    """
    return now.run_count == attempt and now.state is not None and now.state.type in _ENDED_BY_USER


def emit_end(
    kind: str,
    name: str,
    run_id: str,
    status: str,
    payload: Mapping[str, Any],
    *,
    end: SweepOutcome | TrainOutcome | None = None,
    made_from: str = "",
) -> None:
    """The event of an end: `completed` for all that may be used, else `failed` or `cancelled`.

    Args:
        kind, name, run_id, payload: As `emit`.
        status: How it ended.
        end: The outcome, where there is one; its event has the same id each time.
        made_from: The sweep that a training's config comes from.
    """
    what = status if status in ("failed", "cancelled") else "completed"
    once = f"{end.uri}/{end.ended_at}" if end is not None else ""
    emit(kind, run_id, what, payload, name=name, related={"sweep": made_from}, once=once)
