"""What all operators share: submit or attach, wait (deferred or not), hand on how it ended.

Both ways to wait end in `execute_complete`, with the same event. Nothing is kept on the operator across a
deferral: the sweep's key follows from the task's ids, and what else a later try must know is in the task
state store (`tries.py`). Tasks that are killed kill nothing by themselves: `on_kill` asks for their state.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, cast

from airflow.sdk import Asset, BaseOperator, conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException

import raysweep as rs
from raysweep.brief import brief
from raysweep.errors import JobStoppedError, RaysweepError, SpecError, SweepInterrupted
from raysweep.jobs import Cluster, JobOptions, RunningJob, complete, details_of
from raysweep.jobs.attach import storage_not_shared
from raysweep.jobs.connection import is_jobs_address
from raysweep.jobs.errorline import decode_error
from raysweep.jobs.view import Asked, Outcome, RunView
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.spec import SweepSpec, TrainSpec
from raysweep.spec.wallclock import resolve_deadline
from raysweep_airflow import documents
from raysweep_airflow.hooks import Access, RaySweepHook
from raysweep_airflow.identity import TaskId, is_over
from raysweep_airflow.links import LINKS, RayJobLink, SweepLink, job_url, page_url
from raysweep_airflow.tries import ON_CLEAR, STORE_KEY, OnClear, Record, decide
from raysweep_airflow.triggers import SETTLE_S, ProgressLines, SweepTrigger

Spec = SweepSpec | TrainSpec
JOB_KEY: Final = "raysweep_job"
OUTCOME_KEY: Final = "raysweep_outcome"
DEADLINE_GRACE_S: Final = 600.0
"""A sweep ends by itself at its deadline; one that has not so much later is cancelled."""
SYNC_MARGIN_S: Final = 3.0
"""Where a task is not deferred, Airflow ends it at its `execution_timeout`: the sweep is cancelled before."""
KILL_S: Final = 4.0
"""Airflow kills a task 5 s after SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What this try does: the spec with its deadline, under which key, or the outcome that is there."""

    spec: Spec
    key: str
    ended: Outcome | None
    resumes: bool


class JobOperator(BaseOperator):
    """The operators' common part; see `SweepOperator` for the arguments."""

    template_fields: Sequence[str] = ("spec",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"spec": "json"}
    operator_extra_links = LINKS
    ui_color = "#e8f4ea"
    accept_partial: bool = True
    deadline_from: str = "now"

    def __init__(
        self,
        *,
        spec: Any,
        conn_id: str,
        address: str | None,
        job: JobOptions | Mapping[str, Any] | None,
        on_clear: OnClear,
        deferrable: bool | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_clear not in ON_CLEAR:
            raise SpecError("on_clear", f"{on_clear!r} is unknown", f"use one of {', '.join(ON_CLEAR)}")
        if is_jobs_address(address):
            raise SpecError("address", "is one of a Jobs API", "make it a connection, and give its conn_id")
        self.spec = documents.plain(spec)
        self.conn_id = conn_id
        self.address = address
        self.job = job
        self.on_clear: OnClear = on_clear
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        self._running: tuple[RunningJob, Access, TaskId] | None = None

    # --- the parts that differ

    @abstractmethod
    def _asked(self, context: Mapping[str, Any], fields: dict[str, Any]) -> Spec:
        """The spec to run, from the fields that the DAG gives. Raises: SpecError."""

    @abstractmethod
    def _handed_on(self, context: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        """What goes downstream, as JSON data."""

    def _key(self, context: Mapping[str, Any]) -> str:
        return TaskId.of(context).key

    # --- Airflow's calls

    def execute(self, context: Any) -> Any:
        """Submit or attach, and wait: in the triggerer, or here."""
        with self._explained():
            return self._execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """How it ended: the trigger's event, or that of the wait in this process."""
        with self._explained():
            job = RunningJob.from_dict(event["job"])
            if event["end"] == "error":
                return self._finish(context, decode_error(event["error"], job.job_id))
            view = RunView(job.kind, job.storage_path, job.run_id)
            outcome = view.outcome()
            if event["end"] == "timeout" and (outcome is None or outcome.status == "cancelled"):
                note = f"{event['limit']} is over; clear the task to go on with it, or give it more time"
                raise JobStoppedError(job.job_id, note)
            return self._finish(context, outcome or storage_not_shared(job.job_id, view.uri))

    def on_kill(self) -> None:
        """Cancel the job if the task's state says so: SIGTERM also comes when a worker is shut down."""
        if self._running is None:
            return
        job, access, task = self._running
        thread = threading.Thread(target=self._stop_if_over, args=(job, access, task), daemon=True)
        thread.start()
        # Whoever handles the signal may hold what the thread waits for: not for ever.
        thread.join(KILL_S)

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        from jinja2 import TemplateError

        try:
            super()._do_render_template_fields(*args, **kwargs)
        except TemplateError as error:
            with self._explained():
                raise documents.template_error(error, f"{self.task_id}.spec") from None

    # --- one try

    def _execute(self, context: Mapping[str, Any]) -> Any:
        access = RaySweepHook(self.conn_id).access() if self.address is None else None
        given = documents.read(self.spec, context)
        if access is not None and access.storage_path and "storage_path" not in given:
            given["storage_path"] = access.storage_path
        attempt = self._attempt(context, self._asked(context, given))
        if attempt.ended is not None:
            self._show_earlier(context)
            return self._finish(context, attempt.ended)
        if access is None:
            return self._finish(context, self._run_here(attempt))
        return self._run_job(context, attempt, access)

    def _run_job(self, context: Mapping[str, Any], attempt: Attempt, access: Access) -> Any:
        task, options = TaskId.of(context), self._options(context, attempt)
        cluster = Cluster(access.cluster)
        job = cluster.submit_or_attach(attempt.spec, key=attempt.key, options=options)
        self._running = (job, access, task)
        self._show(context, job, access)
        ends_at, limit = self._limit(attempt.spec)
        trigger = SweepTrigger(
            job=job.to_dict(),
            conn_id=self.conn_id,
            task=task.to_dict(),
            fire_after=time.time() + SETTLE_S,
            ends_at=ends_at,
            limit=limit,
            lease_ttl_s=options.lease_ttl_s,
        )
        if self.deferrable and job.how != "finished":
            self.defer(trigger=trigger, method_name="execute_complete")
        event = asyncio.run(trigger.follow(access.cluster))
        self._running = None
        return self.execute_complete(context, event)

    def _run_here(self, attempt: Attempt) -> Outcome | RaysweepError:
        """On a Ray of this process: an embedded one, or one that it is near."""
        lines = ProgressLines(self.log.info)
        try:
            if isinstance(attempt.spec, TrainSpec):
                return rs.run_training(attempt.spec, key=attempt.key, address=self.address)
            return rs.run_sweep(
                attempt.spec,
                key=attempt.key,
                address=self.address,
                on_progress=lines,
                resume_cancelled=attempt.resumes,
            )
        except SweepInterrupted as error:
            # A worker that shuts down, as a rule: the next try goes on.
            raise AirflowException(str(error)) from None
        except RaysweepError as error:
            return error

    def _attempt(self, context: Mapping[str, Any], asked: Spec) -> Attempt:
        """What is there, what is asked for, and what that means; remembered for the next try."""
        ti, store, now = context["ti"], context["task_state_store"], datetime.now(UTC)
        found = Record.from_dict(store.get(STORE_KEY))
        is_cleared = found is not None and found.max_tries != ti.max_tries
        record = found or self._dated(Record(max_tries=ti.max_tries), context, now)
        spec, base = _with_deadline(asked, record), self._key(context)
        ended = _view(spec, base + record.suffix).outcome()
        do = decide(ended, is_cleared=is_cleared, on_clear=self.on_clear, accept_partial=self.accept_partial)
        if do == "reuse":
            self._check_same(spec, base + record.suffix, ended)
        elif is_cleared:
            suffix = f"#{ti.try_number}" if do == "restart" else record.suffix
            renewed = self._dated(replace(record, max_tries=ti.max_tries, suffix=suffix), context, now)
            later = _with_deadline(asked, renewed)
            if do != "go" or _may_change(later, base + suffix):
                record, spec = renewed, later
        key = base + record.suffix
        self._say(do, ended, key, is_cleared=is_cleared)
        store.set(STORE_KEY, replace(record, max_tries=ti.max_tries).to_dict())
        if do == "reuse":
            return Attempt(spec=spec, key=key, ended=ended, resumes=False)
        return Attempt(spec=spec, key=key, ended=None, resumes=is_cleared)

    def _dated(self, record: Record, context: Mapping[str, Any], now: datetime) -> Record:
        """From when a deadline of the spec counts, and the one that `execution_timeout` gives."""
        since = now
        if self.deadline_from == "logical_date":
            if context.get("logical_date") is None:
                fix = 'trigger it with a logical date, or use deadline_from="now"'
                raise SpecError("deadline_from", "this run has no logical date", fix)
            since = context["logical_date"]
        ends_at = None
        if self.execution_timeout is not None:
            # Time to end with what there is, rather than to be ended.
            ends_at = (now + self.execution_timeout - _margin(self.execution_timeout)).isoformat()
        return replace(record, scheduled_at=since.isoformat(), ends_at=ends_at)

    def _check_same(self, spec: Spec, key: str, ended: Outcome | None) -> None:
        """See that what is reused is what is asked for."""
        try:
            if _view(spec, key).check_same(_asked(spec, key), ended):
                self.log.info('its limit was moved since: clear it with on_clear="resume" to go on with it')
        except rs.SpecChangedError as error:
            raise SpecError(
                "spec", error.problem, 'change it back, or clear the task with on_clear="restart"'
            ) from None

    def _say(self, do: str, ended: Outcome | None, key: str, *, is_cleared: bool) -> None:
        was = f"{ended.status}" if ended is not None else ""
        cleared = f" (on_clear={self.on_clear!r})" if is_cleared else ""
        texts = {
            "reuse": f"run {key!r} has ended before ({was}): its outcome is reused{cleared}",
            "resume": f"run {key!r} had ended ({was}): going on with it where it can be{cleared}",
            "restart": f"the run had ended ({was}): beginning anew as {key!r}{cleared}",
            "go": f"run {key!r}",
        }
        self.log.info(texts[do])

    def _options(self, context: Mapping[str, Any], attempt: Attempt) -> JobOptions:
        """The job's options, its templates rendered here and not before: they may hold secrets."""
        given = self.job if self.job is not None else {}
        if isinstance(given, Mapping):
            unknown = sorted(set(given) - {field.name for field in fields(JobOptions)})
            if unknown:
                known = ", ".join(field.name for field in fields(JobOptions))
                raise SpecError("job", f"has no {unknown[0]!r}", f"it knows {known}")
            values: Any = self.render_template(dict(given), cast(Any, context))
            given = JobOptions(**values)
        working_dir = given.working_dir
        modules = [_located(each, context, "job.py_modules") for each in given.py_modules]
        return replace(
            given,
            working_dir=_located(working_dir, context, "job.working_dir") if working_dir else None,
            py_modules=modules,
            metadata={**TaskId.of(context).metadata(), **given.metadata},
            on_cancelled="resume" if attempt.resumes else given.on_cancelled,
        )

    def _limit(self, spec: Spec) -> tuple[float | None, str]:
        """When it is cancelled, and by which limit."""
        limits: list[tuple[float, str]] = []
        if self.execution_timeout is not None:
            margin_s = 0.0 if self.deferrable else SYNC_MARGIN_S
            at = time.time() + self.execution_timeout.total_seconds() - margin_s
            limits.append((at, f"execution_timeout of {self.execution_timeout}"))
        if isinstance(spec, SweepSpec) and isinstance(spec.stop.deadline, datetime):
            at = spec.stop.deadline.timestamp() + DEADLINE_GRACE_S
            limits.append(
                (at, f"stop.deadline {spec.stop.deadline.isoformat()} for {DEADLINE_GRACE_S:.0f} s")
            )
        return min(limits) if limits else (None, "")

    # --- what is shown and handed on

    def _show(self, context: Mapping[str, Any], job: RunningJob, access: Access) -> None:
        ti, task = context["ti"], TaskId.of(context)
        url = job_url(access.dashboard_url, job)
        ti.xcom_push(key=RayJobLink().xcom_key, value=url)
        page = page_url(task.dag_id, task.run_id, task.task_id, task.map_index)
        ti.xcom_push(key=SweepLink().xcom_key, value=page)
        where = {"uri": f"{job.storage_path}/{job.run_id}", "job_url": url}
        context["task_state_store"].set(JOB_KEY, {**job.to_dict(), **where})
        self.log.info("%s %s: %s job %s: %s", job.kind, job.run_id, job.how, job.job_id or "none", url)
        self.log.info("stored at %s; raysweep attach %s follows it", where["uri"], job.run_id)

    def _show_earlier(self, context: Mapping[str, Any]) -> None:
        """The links of the try that ran it: Airflow has forgotten them."""
        task, job = TaskId.of(context), context["task_state_store"].get(JOB_KEY)
        if isinstance(job, Mapping):
            context["ti"].xcom_push(key=RayJobLink().xcom_key, value=job["job_url"])
        page = page_url(task.dag_id, task.run_id, task.task_id, task.map_index)
        context["ti"].xcom_push(key=SweepLink().xcom_key, value=page)

    def _finish(self, context: Mapping[str, Any], end: Outcome | RaysweepError) -> Any:
        """Hand on the outcome, or fail. The only way out of every try."""
        outcome = getattr(end, "outcome", end)
        if isinstance(outcome, SweepOutcome | TrainOutcome):
            context["task_state_store"].set(OUTCOME_KEY, _summary(outcome))
        outcome = complete(end, accept_partial=self.accept_partial)
        result = self._handed_on(context, outcome)
        for asset in self.outlets:
            if isinstance(asset, Asset):
                context["outlet_events"][asset].extra = _extra(result)
        self.log.info("%s; %s", result["why"] or result["status"], result["outcome_uri"])
        return result

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What a retry cannot help fails at once, and says what is known."""
        try:
            yield
        except RaysweepError as error:
            if details := details_of(error):
                self.log.error("%s", details)
            if error.retryable:
                raise
            text = f"{type(error).__name__}: {error}"
            if getattr(getattr(error, "outcome", None), "status", "") == "cancelled":
                text += "; clear the task to go on with it"
            raise AirflowFailException(text) from None

    def _stop_if_over(self, job: RunningJob, access: Access, task: TaskId) -> None:
        try:
            state = task.state()
            if not is_over(state):
                self.log.info("task is %s: job %s goes on; the next try attaches", state, job.job_id)
                return
            self.log.warning("task is %s: cancelling job %s", state, job.job_id)
            Cluster(access.cluster).cancel(
                job, reason=f"its task was marked {state} in Airflow", by=f"Airflow: {task.key}", grace_s=2.0
            )
        except Exception:
            # A job whose task's state is not known goes on.
            self.log.exception("job %s was not cancelled: raysweep cancel does it", job.job_id)


def _asked(spec: Spec, key: str) -> Asked:
    """As `Asked.of`, for trainables too that never leave this process."""
    name = key if isinstance(spec, SweepSpec) else f"train {key}"
    return Asked(spec=spec.placed(), key=key, run_id=rs.sweep_id(spec.name, name))


def _view(spec: Spec, key: str) -> RunView:
    asked = _asked(spec, key)
    return RunView(asked.kind, asked.spec.storage_path, asked.run_id)


def _may_change(spec: Spec, key: str) -> bool:
    """Whether a run that has not ended may go on with this spec."""
    try:
        _view(spec, key).check_same(_asked(spec, key), None)
    except rs.SpecChangedError:
        return False
    return True


def _with_deadline(spec: Spec, record: Record) -> Spec:
    """With its deadline as the moment that it means, or that of the task's timeout if that is earlier."""
    if not isinstance(spec, SweepSpec):
        return spec
    given = resolve_deadline(spec.stop.deadline, datetime.fromisoformat(record.scheduled_at).timestamp())
    own = datetime.fromisoformat(record.ends_at) if record.ends_at is not None else None
    moments = [moment for moment in (given, own) if moment is not None]
    if not moments:
        return spec
    return spec.replace(stop=spec.stop.replace(deadline=min(moments)))


def _margin(timeout: timedelta) -> timedelta:
    """How long before the task's timeout its sweep ends: a tenth, 10 s to 2 min, at most half."""
    seconds = timeout.total_seconds()
    return timedelta(seconds=min(max(10.0, seconds / 10), 120.0, seconds / 2))


def _located(path: str | os.PathLike[str], context: Mapping[str, Any], field: str) -> str:
    """A folder or file to upload: relative paths are beside the DAG."""
    text = os.fspath(path)
    return text if "://" in text else str(documents.find(text, context, field))


def _summary(outcome: Outcome) -> dict[str, Any]:
    """What the task state store shows of the end."""
    small = brief(outcome, top_k=1, max_bytes=4_096)
    kept = ("status", "why", "counts", "metric", "best", "metrics", "uri", "outcome_uri")
    return {name: small[name] for name in kept if name in small}


def _extra(result: Mapping[str, Any]) -> dict[str, Any]:
    """What an asset's event tells whoever is scheduled on it: no more than it needs."""
    return {name: value for name, value in result.items() if name not in ("top_k", "cut")}
