"""The work of a task when it runs: submit or attach, wait (deferred or not), hand the end on.

Both ways to wait end in `Try.complete`, with the same event. The sweep's key follows from the task's ids, and
what else a later try must know is in the task state store (`tries.py`). A task that is killed kills nothing
by itself: a kill leaves a state, which is asked for, at whatever moment of the try.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import (
    ClusterAuthError,
    ConnectionUnreadableError,
    RaysweepError,
    SpecChangedError,
    SpecError,
    StorageError,
    SweepInterrupted,
)
from raysweep.jobs import ClusterConnection, JobOptions, RunningJob
from raysweep.jobs.notes import ProgressLines
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.runs.reading.view import Outcome, RunView
from raysweep.specs import AnyRequest, RunRequest, SweepSpec, TrainSpec
from raysweep.specs.continuing import Continue
from raysweep.specs.outline import outline, outline_changes
from raysweep.step import (
    Canceller,
    End,
    Intent,
    Place,
    Step,
    complete,
    connected,
    verdict_of,
)
from raysweep_airflow import documents
from raysweep_airflow.compat import AirflowException, store_of
from raysweep_airflow.deadlines import margin_of, with_deadline
from raysweep_airflow.ends import summary_of
from raysweep_airflow.hooks import Access, RaySweepHook
from raysweep_airflow.identity import TaskId
from raysweep_airflow.links import RayJobLink, ReportLink, SweepLink, job_url, page_url, report_url
from raysweep_airflow.mapped import is_reference
from raysweep_airflow.night_clusters import after, brought_up, night_of
from raysweep_airflow.page.place import Place as JobPlace
from raysweep_airflow.records import Records
from raysweep_airflow.tries import Do, Record, decide, generation_of, is_cleared, still_due
from raysweep_airflow.triggers import SETTLE_S, SweepTrigger
from raysweep_airflow.upstream import job_before

if TYPE_CHECKING:
    from raysweep_airflow.base import JobOperator

Spec = SweepSpec | TrainSpec
JOB_KEY: Final = "raysweep_job"
OUTCOME_KEY: Final = "raysweep_outcome"
PLACE_KEY: Final = "_raysweep_place"
"""An XCom beside `raysweep_job`, which Airflow may delete."""
PLACE_FIELDS: Final = ("kind", "run_id", "key", "storage_path", "address", "job_id")
DEADLINE_GRACE_S: Final = 600.0
"""A sweep ends by itself at its deadline; one that has not so much later is cancelled."""
SYNC_MARGIN_S: Final = 3.0
"""The margin for a task that is not deferred: Airflow ends it at its `execution_timeout`; cancel before."""
KILL_S: Final = 4.0
"""Airflow kills a task 5 s after SIGTERM."""
LEASE_S: Final = 4 * 3600.0
"""A job that no task has waited for so long ends, resumably: longer than outages and delays of retries."""
FIRST_LEASE_S: Final = 900.0
"""… until its trigger runs: a mark between its deferral and that moment reaches no process."""
ASK_PAUSES_S: Final = (1.0, 3.0, 6.0)
"""Between the times that a connection, or a refused token, is tried, before it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The attempt of this try: what is to be run, its deadline a moment, or the outcome that is there."""

    request: AnyRequest
    ended: Outcome | None
    resumes: bool
    retries: bool = False


def _continued(options: JobOptions, attempt: Attempt) -> JobOptions:
    """The options, with what a clear asks for."""
    return options.replace(
        resume_cancelled=attempt.resumes or options.resume_cancelled,
        retry="failed" if attempt.retries else options.retry,
    )


def stop_in_time(stopping: Coroutine[Any, Any, None]) -> None:
    """Run it within the seconds that Airflow leaves."""
    thread = threading.Thread(target=asyncio.run, args=(stopping,), daemon=True)
    thread.start()
    # The signal's handler may hold what the thread waits for: not for ever.
    thread.join(KILL_S)


class Try:
    """One try of a task."""

    def __init__(self, operator: JobOperator, context: Mapping[str, Any]) -> None:
        self.operator = operator
        self.context = context
        self.ti = context["ti"]
        self.store = store_of(context)
        self.task = TaskId.of(context)
        self.log = operator.log
        self.began = time.time()
        self.intent = Intent()
        self.access: Access | None = None
        self.record: Record | None = None
        self.night = night_of(operator.address, context)
        self.records = Records(context, self.store, self.task, self.log)

    def run(self) -> Any:
        """Run it, attach to it, or hand on what there is."""
        operator = self.operator
        if operator.address is None or self.night is not None:
            # From the first moment: a task that is marked as failed while it is submitted must not continue.
            operator.killed = lambda: stop_in_time(self._call_off())
        known = operator.known(self.context)
        if known is not None:
            return self._hand_on(known)
        access = self.access = self._access() if operator.address is None else None
        given = operator.read_spec(self.context)
        if access is not None and access.storage_path and "storage_path" not in given:
            given["storage_path"] = access.storage_path
        attempt = self.attempt(operator.asked(self.context, given))
        if attempt.ended is not None:
            self._show_earlier()
            return self.finish(attempt.ended)
        operator.check_begin(attempt.request)
        if self.night is not None:
            self.access = brought_up(self.night, attempt.request.run.id, self.log.info)
            return self._run_job(attempt, self.access)
        return self.finish(self._run_here(attempt)) if access is None else self._run_job(attempt, access)

    def complete(self, event: Mapping[str, Any]) -> Any:
        """Finish by a trigger's event; or continue, if the job ended for an earlier try that was marked."""
        end = End.from_dict(event)
        result = end.result(again="clear the task")
        is_limit = end.how == "timeout"
        if not is_limit and verdict_of(result).result == "cancelled" and self._is_wanted_again(end.job):
            self.log.warning("job %s ended for an earlier try, which was marked: continuing", end.job.job_id)
            return self.run()
        if self.night is not None:
            result = after(self.night, end.job.run_id, result)
        return self.finish(result)

    def finish(self, end: Outcome | RaysweepError) -> Any:
        """Hand on the outcome, or fail: the end of every try that ran something."""
        outcome = getattr(end, "outcome", end)
        if isinstance(outcome, SweepOutcome | TrainOutcome):
            self.store.set(OUTCOME_KEY, summary_of(outcome))
        operator = self.operator
        outcome = complete(end, accept_partial=operator.accept_partial, accept_failed=operator.accept_failed)
        return self._hand_on(operator.handed_on(self.context, outcome))

    def _is_wanted_again(self, job: RunningJob) -> bool:
        """True if the job was asked to end as this task was marked, and a person has cleared the task since.

        A try may attach to a job that has been asked to end and has not ended yet.
        """
        if not self.task.has_ended_by_mark(job.view().cancellation(), job.number):
            return False
        try:
            return not self.task.why_over()
        except Exception:
            self.log.exception("it is not known whether the task was cleared")
            return False

    def _hand_on(self, result: dict[str, Any]) -> dict[str, Any]:
        self.operator.result = result
        self.operator.announce(self.context, result)
        self.log.info("%s; %s", result["why"] or result["status"], result["outcome_uri"])
        return result

    # --- the run

    def _access(self) -> Access:
        """The connection, asked for again where it is not there: Airflow says so of whatever failed."""
        hook, was_there = RaySweepHook(self.operator.conn_id), self.store.get(JOB_KEY) is not None
        for pause_s in ASK_PAUSES_S:
            try:
                return hook.access(was_there=was_there)
            except (ConnectionUnreadableError, SpecError) as error:
                if isinstance(error, SpecError) and error.field != "conn_id":
                    raise
                self.log.warning("%s; asking again", error)
            time.sleep(pause_s)
        return hook.access(was_there=was_there)

    async def _call_off(self) -> None:
        """End this try's job if the task is over by its state, or see that there will be none."""
        canceller = Canceller(to=self._connect, by=self.task.canceller, log=self.log, grace_s=2.0)
        await canceller.call_off_if_over(self.intent, self.task.why_over)

    async def _connect(self) -> ClusterConnection:
        assert self.access is not None  # no job is announced before
        return self.access.cluster

    def _run_job(self, attempt: Attempt, access: Access) -> Any:
        operator, options = self.operator, self._options(attempt)
        lease_ttl_s = options.lease_ttl_s
        if lease_ttl_s is not None:
            options = options.replace(lease_ttl_s=min(lease_ttl_s, FIRST_LEASE_S))
        step = Step(request=attempt.request, place=Place(connection=access.cluster), options=options)
        try:
            job = self._submitted(step)
        except SpecChangedError as error:
            raise _changed(error) from None
        if job.how == "attached" and options.lease_ttl_s is not None:
            with suppress(StorageError):  # the earlier one stands
                job.view().renew_lease(options.lease_ttl_s)
        self._carried_out()
        ends_at, limit = self._limit(attempt.request.spec)
        trigger = SweepTrigger(
            job=job.to_dict(),
            conn_id=operator.conn_id,
            task=self.task.to_dict(),
            fire_after=time.time() + SETTLE_S,
            ends_at=ends_at,
            limit=limit,
            lease_ttl_s=lease_ttl_s,
            night=self.night.model_dump() if self.night is not None else None,
        )
        self._end_superseded(job, access)
        self._show(job, access)
        if operator.deferrable and job.how != "finished":
            operator.defer(trigger=trigger, method_name="execute_complete")
        event = asyncio.run(trigger.follow(access.cluster))
        operator.killed = None
        return self.complete(event)

    def _submitted(self, step: Step) -> RunningJob:
        """Submit; a refused token is tried again: Airflow may get a rotated one a little later."""
        for pause_s in ASK_PAUSES_S:
            try:
                return step.submit(self.intent.announce)
            except ClusterAuthError as error:
                self.log.warning("%s; asking again", error)
            time.sleep(pause_s)
        return step.submit(self.intent.announce)

    def _end_superseded(self, job: RunningJob, access: Access) -> None:
        """End a run of an earlier try that is not needed, as the sweep has found more since."""
        earlier = self.store.get(JOB_KEY)
        place = JobPlace.of_job(earlier)
        if place is None or not place.is_of(self.task.dag_id) or place.storage_path != job.storage_path:
            return  # not what a try of this task has left: people may edit it
        canceller = Canceller(to=connected(access.cluster), by=self.task.canceller, log=self.log)
        asyncio.run(canceller.cancel_superseded(earlier, job))

    def _run_here(self, attempt: Attempt) -> Outcome | RaysweepError:
        """On a Ray of this process: an embedded one, or one that it is near."""
        self._note_place(attempt)
        step = Step(
            request=attempt.request,
            place=Place.of(self.operator.address),
            options=_continued(JobOptions(), attempt),
        )
        on_progress = ProgressLines(self.log.info) if attempt.request.run.kind == "sweep" else None
        try:
            return step.run(on_progress=on_progress)
        except SweepInterrupted as error:
            # A worker that shuts down, as a rule: the next try continues.
            raise AirflowException(str(error)) from None
        except RaysweepError as error:
            return error

    def attempt(self, asked: Spec) -> Attempt:
        """The attempt, from what is there and what is asked for; remembered for the next try."""
        operator, ti, now = self.operator, self.ti, datetime.now(UTC)
        base = operator.key(self.context, asked)
        found, made = self.records.find(_view(RunRequest.of(asked, base)), base)
        clear_number = self.records.clear_number
        cleared = is_cleared(
            found,
            max_tries=ti.max_tries,
            clear_number=clear_number,
            try_number=ti.try_number,
            retries=operator.retries or 0,
        )
        record = found or self._dated(Record(max_tries=ti.max_tries, suffix=made), now)
        request = RunRequest.of(with_deadline(asked, record), base + record.suffix)
        ended = _view(request).outcome()
        kept = None if cleared else still_due(found, ended)
        due = kept or (None if cleared else self._due_by_mark(request, ended))
        do = due or decide(
            ended,
            is_cleared=cleared,
            on_clear=operator.on_clear,
            accept_partial=operator.accept_partial,
            is_other=cleared and ended is None and self._is_other(request),
        )
        past = record.past if kept else generation_of(ended)
        if do == "reuse":
            self._check_same(request, ended)
        elif cleared:
            suffix = record.restarted(ti.try_number) if do == "restart" else record.suffix
            renewed = self._dated(replace(record, suffix=suffix), now)
            later = RunRequest.of(with_deadline(asked, renewed), base + suffix)
            if do != "go" or _may_change(later):
                record, request = renewed, later
        self._say(do, ended, request.run.key, is_cleared=cleared or due is not None)
        record = replace(record, run_began=self.records.run_began, clear_number=clear_number)
        record = replace(record, max_tries=ti.max_tries, due=None, past=None)
        if do == "reuse":
            self._remember(record)
            return Attempt(request=request, ended=ended, resumes=False)
        resumes = cleared or due is not None
        if resumes:
            # Kept until it is carried out: this try may fail before. A restart is in the key already.
            goes_on = do in ("resume", "retry")
            record = replace(record, due=do, past=past) if goes_on else replace(record, due="go")
        self._remember(record)
        return Attempt(request=request, ended=None, resumes=resumes, retries=do == "retry")

    def _is_other(self, request: AnyRequest) -> bool:
        """True if what runs under this key, or waits for its driver, is of another spec."""
        job = self.store.get(JOB_KEY)
        known = job.get("spec") if isinstance(job, Mapping) and job.get("run_id") == request.run.id else None
        if known and outline_changes(known, outline(request.spec)).unsafe:
            return True
        return not _may_change(request)

    def _due_by_mark(self, request: AnyRequest, ended: Outcome | None) -> Do | None:
        """The work where the run was ended as its task was marked: since a try runs, it is wanted."""
        if ended is not None and ended.status != "cancelled":
            return None
        view = _view(request)
        if not self.task.has_ended_by_mark(view.cancellation(), view.newest_job()):
            return None
        return "resume" if ended is not None else "go"

    def _carried_out(self) -> None:
        """Note that the request of a clear has become a job, which the next try finds."""
        if self.record is not None and self.record.due is not None:
            self._remember(replace(self.record, due=None, past=None))

    def _remember(self, record: Record) -> None:
        self.record = record
        self.records.keep(record)

    def _dated(self, record: Record, now: datetime) -> Record:
        """From when a deadline of the spec counts, and the one that `execution_timeout` gives."""
        since, timeout = now, self.operator.execution_timeout
        if self.operator.deadline_from == "logical_date":
            if self.context.get("logical_date") is None:
                fix = 'trigger it with a logical date, or use deadline_from="now"'
                raise SpecError("deadline_from", "this run has no logical date", fix)
            since = self.context["logical_date"]
        # Time to end with what there is, rather than to be ended.
        ends_at = (now + timeout - margin_of(timeout)).isoformat() if timeout is not None else None
        return replace(record, scheduled_at=since.isoformat(), begun_at=now.isoformat(), ends_at=ends_at)

    def _check_same(self, request: AnyRequest, ended: Outcome | None) -> None:
        """See that what is reused is what is asked for."""
        try:
            if _view(request).check_same(request, ended):
                self.log.info('its limit was moved since: on_clear="resume" continues with it')
        except SpecChangedError as error:
            raise _changed(error) from None

    def _say(self, do: str, ended: Outcome | None, key: str, *, is_cleared: bool) -> None:
        was = ended.status if ended is not None else ""
        cleared = f" (on_clear={self.operator.on_clear!r})" if is_cleared else ""
        texts = {
            "reuse": f"run {key!r} has ended before ({was}): its outcome is reused{cleared}",
            "resume": f"run {key!r} had ended ({was}): continuing with it where it can be{cleared}",
            "retry": f"run {key!r} had ended ({was}): running its failed trials again{cleared}",
            "restart": f"the run had ended ({was}): beginning anew as {key!r}{cleared}",
            "go": f"run {key!r}",
        }
        self.log.info(texts[do])

    def _options(self, attempt: Attempt) -> JobOptions:
        """The job's options, its templates rendered here and not before: they may hold secrets."""
        options = self._given_options()
        folder = options.working_dir
        # One that the DAG sets to None has none.
        lease_ttl_s = options.lease_ttl_s if "lease_ttl_s" in options.model_fields_set else LEASE_S
        return self.operator.options(
            options.replace(
                lease_ttl_s=lease_ttl_s,
                working_dir=self._located(folder, "job.working_dir") if folder is not None else None,
                py_modules=[self._located(each, "job.py_modules") for each in options.py_modules],
                metadata={**self.task.metadata(), **options.metadata},
                **_continued(options, attempt).model_dump(include={"resume_cancelled", "retry"}),
            )
        )

    def _given_options(self) -> JobOptions:
        """The options that the DAG gives to this task; to a gate or a training, those of its sweep."""
        operator, given = self.operator, self.operator.job
        is_own = given is not None
        if not is_own and operator.takes_job:
            given = job_before(operator)
        if is_reference(given) or (isinstance(given, Mapping) and "job" not in operator.handed):
            plain = dict(given) if isinstance(given, Mapping) else given
            given = operator.rendered(plain, self.context, "JobOptions")
        try:
            options = given if isinstance(given, JobOptions) else JobOptions.model_validate(given or {})
        except SpecError as error:
            raise SpecError(f"job.{error.field}", error.problem, error.fix) from None
        if is_own:
            return options
        # Code, environment and place; how that sweep continues is not this one's.
        kept = options.model_fields_set - {*Continue.model_fields, "takeover"}
        return JobOptions(**{name: getattr(options, name) for name in kept})

    def _located(self, path: str, field: str) -> str:
        """A folder or file to upload: relative paths are beside the DAG."""
        return path if "://" in path else str(documents.find(path, self.context, field))

    def _limit(self, spec: Spec) -> tuple[float | None, str]:
        """The time at which it is cancelled, in UTC seconds, and the limit."""
        limits: list[tuple[float, str]] = []
        timeout = self.operator.execution_timeout
        if timeout is not None:
            margin_s = 0.0 if self.operator.deferrable else SYNC_MARGIN_S
            at = self.began + timeout.total_seconds() - margin_s  # Airflow's clock runs since then
            limits.append((at, f"execution_timeout of {timeout}"))
        if isinstance(spec, SweepSpec) and isinstance(spec.stop.deadline, datetime):
            at = spec.stop.deadline.timestamp() + DEADLINE_GRACE_S
            limits.append((at, f"stop.deadline {spec.stop.deadline.isoformat()}, and its grace,"))
        return min(limits) if limits else (None, "")

    # --- what is shown

    def _show(self, job: RunningJob, access: Access) -> None:
        uri, url = f"{job.storage_path}/{job.run_id}", job_url(access.dashboard_url, job)
        self.store.set(JOB_KEY, {**job.to_dict(), "uri": uri, "job_url": url})
        self.ti.xcom_push(key=PLACE_KEY, value={name: getattr(job, name) for name in PLACE_FIELDS})
        self._push_links(url)
        self.log.info("%s %s: %s job %s: %s", job.kind, job.run_id, job.how, job.job_id or "none", url)
        self.log.info("stored at %s; raysweep attach %s follows it", uri, job.run_id)

    def _note_place(self, attempt: Attempt) -> None:
        """Note the storage of a run without a job: the page and scripts find it where they find a job."""
        run, where = attempt.request.run, attempt.request.spec.storage_path
        place = {"kind": run.kind, "run_id": run.id, "key": run.key, "storage_path": where}
        self.store.set(JOB_KEY, {**place, "uri": f"{where}/{run.id}", "job_url": ""})

    def _show_earlier(self) -> None:
        """The links of the try that ran it: Airflow has forgotten them."""
        job = self.store.get(JOB_KEY)
        self._push_links(job["job_url"] if isinstance(job, Mapping) else "")

    def _push_links(self, url: str) -> None:
        task = self.task
        if url:
            self.ti.xcom_push(key=RayJobLink().xcom_key, value=url)
        name = (task.dag_id, task.run_id, task.task_id, task.map_index)
        self.ti.xcom_push(key=SweepLink().xcom_key, value=page_url(*name))
        if any(isinstance(each, ReportLink) for each in self.operator.operator_extra_links):
            self.ti.xcom_push(key=ReportLink().xcom_key, value=report_url(*name))


def _view(request: AnyRequest) -> RunView:
    return RunView(request.run.kind, request.spec.storage_path, request.run.id)


def _changed(error: SpecChangedError) -> SpecError:
    """The error with the fix that Airflow has for it."""
    return SpecError("spec", error.problem, 'change it back, or clear the task with on_clear="restart"')


def _may_change(request: AnyRequest) -> bool:
    """True if a run that has not ended may continue with this spec."""
    try:
        _view(request).check_same(request, None)
    except SpecChangedError:
        return False
    return True
