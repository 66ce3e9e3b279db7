"""Wait for a job, and cancel it. A caller that goes away takes nothing with it: the job continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from raysweep.errors import (
    ClusterError,
    ClusterLostError,
    JobFailedError,
    JobNotFoundError,
    JobStoppedError,
    RaysweepError,
    SpecChangedError,
    StorageError,
    WaitFailedError,
    one_line,
)
from raysweep.jobs import attach
from raysweep.jobs.attach import Cluster, RunningJob, settled_outcome, storage_not_shared, stored
from raysweep.jobs.client import JobsClient, open_client
from raysweep.jobs.errorline import decode_error, find_error, has_outcome
from raysweep.jobs.patience import REFUSED_S, UNREACHABLE_S, Patience
from raysweep.jobs.same import stored_changes
from raysweep.jobs.wire import JobInfo
from raysweep.outcome import SweepProgress
from raysweep.runs.ownership.lease import whoami
from raysweep.runs.reading.view import Outcome, RunView
from raysweep.threads import on_thread

LOG: Final = logging.getLogger("raysweep.jobs")
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 5.0
PENDING_NOTE_S: Final = 60.0
CANCEL_GRACE_S: Final = 15.0
"""A heartbeat is 2 s, ending trials takes 2 s more; the rest is for slow machines and storage."""
ASK_S: Final = 3.0
"""The time for the storage to store a request to cancel, before the cluster is asked."""

# Ends that the next try would repeat: the environment cannot be built, or no node can take the driver.
_LASTING: Final = frozenset(
    {"RUNTIME_ENV_SETUP_FAILURE", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "JOB_ENTRYPOINT_COMMAND_START_ERROR"}
)
_KILLED: Final = frozenset({128 + 9, 128 + 15})

OnProgress = Callable[[SweepProgress], None]


async def wait(
    job: RunningJob,
    *,
    to: Cluster,
    on_progress: OnProgress | None = None,
    lease_ttl_s: float | None = None,
    unreachable_s: float = UNREACHABLE_S,
    refused_s: float = REFUSED_S,
) -> Outcome:
    """The outcome of a job, as soon as there is one: a `SweepOutcome`, or of a training run a `TrainOutcome`.

    Looks every second at first, every 5 s later. May be cancelled and called again, from any process.

    Args:
        job: What `submit_or_attach` returned.
        to: The cluster.
        on_progress: Called, on this event loop, with each new heartbeat.
        lease_ttl_s: Renew the sweep's lease while waiting; give what `JobOptions.lease_ttl_s` was.
        unreachable_s: How long the cluster, or the storage, may not answer before its error is raised.
        refused_s: How long the cluster may refuse to answer: a gateway that restarts says 403, or 404.

    Raises:
        What the driver ended with, as it is: `SpecError`, `SweepHeldError`, ….
        ClusterLostError: The driver was killed, or the cluster has forgotten the job: submit again to resume.
        JobStoppedError: A person stopped it. JobFailedError: it failed for good, in another way.
        SpecChangedError: The outcome is that of another spec: another caller's, under the same key.
        StorageNotSharedError, ClusterError, StorageError.
        WaitFailedError: Something else failed here, and continued failing; waiting again finds the job.
    """
    view = await on_thread(job.view, within_s=attach.READ_S)
    cluster_patience, storage_patience = Patience(unreachable_s, refused_s), Patience(unreachable_s)
    heartbeats = _Heartbeats(view, on_progress)
    pause_s = FIRST_PAUSE_S
    async with open_client(to) as client, leased(view, lease_ttl_s):
        watch = _Watch(client, job)
        while True:
            end: RaysweepError | JobInfo | None = None
            # The job first: what it did before its end is in the storage by then.
            try:
                end = await watch.look()
                cluster_patience.renew()
            except Exception as error:  # noqa: BLE001  whatever it is (EMFILE, …), the job continues
                cluster_patience.spend(_typed(error, job))
            try:
                outcome = await settled_outcome(view, within_s=await watch.patience_with(end))
                changed = await stored(lambda: stored_changes(view, job.spec), view) if outcome else ()
                if outcome is not None and not changed:
                    return outcome
                progress = await heartbeats.newest() if end is None else None
                storage_patience.renew()
            except Exception as error:  # noqa: BLE001  the same
                storage_patience.spend(_typed(error, job))
                end, progress, changed = None, None, ()  # whether there is an outcome is not known
            if changed:
                raise SpecChangedError(job.run_id, changed)
            if progress is not None and on_progress is not None:
                on_progress(progress)
            if end is not None:
                raise await watch.error_of(end, view)
            await asyncio.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, pause_s * 1.25)


async def cancel(
    job: RunningJob, *, to: Cluster, reason: str = "", by: str = "", grace_s: float = CANCEL_GRACE_S
) -> bool:
    """Cancel a job: its sweep ends with the outcome `cancelled`. Names its number: it never hits a later job.

    Its driver is asked first, through the storage: also one that cannot be reached, or has not started yet.
    A sweep's controller takes a few seconds for it: stopped by Ray, it would have three to end its trials and
    to write the outcome. A training run is stopped at once.

    Args:
        job: What `submit_or_attach` returned.
        to: The cluster.
        reason: Becomes part of the outcome's `why`.
        by: Who cancels; default: this user on this machine.
        grace_s: How long the controller has before Ray stops the job; 0 stops it at once.

    Returns whether it was running. Raises: ClusterError; `ask_to_cancel` has been done by then.
    """
    if not job.job_id:
        return False
    was_asked = await ask_to_cancel(job, reason=reason, by=by)
    return await end_job(job, to=to, was_asked=was_asked, grace_s=grace_s)


async def end_job(job: RunningJob, *, to: Cluster, was_asked: bool, grace_s: float = CANCEL_GRACE_S) -> bool:
    """Do the rest of `cancel` once the job's driver `was_asked`: it is stopped where it does not end."""
    async with open_client(to) as client:
        with suppress(JobNotFoundError):
            info = await client.info(job.job_id)
            if info.is_ended:
                return False
            if was_asked and job.kind == "sweep" and info.status == "RUNNING":
                if await _ends_within(client, job.job_id, grace_s):
                    return True
                LOG.warning("job %s has not ended within %.0f s: it is stopped", job.job_id, grace_s)
            return await client.stop(job.job_id) or was_asked
        return False


async def ask_to_cancel(job: RunningJob, *, reason: str = "", by: str = "") -> bool:
    """Ask a job's driver, never a later one's, through the storage to cancel it; was that stored?"""

    def ask() -> None:
        job.view().ask_to_cancel(reason, by or whoami(), number=job.number)

    try:
        await on_thread(ask, within_s=ASK_S)
    except (StorageError, TimeoutError, OSError) as error:
        # Where its cluster is reached, only the reason is lost: the driver cancels where its job is stopped.
        LOG.warning("job %s: the request to cancel could not be stored: %s", job.job_id, error)
        return False
    return True


def _typed(error: Exception, job: RunningJob) -> RaysweepError:
    if isinstance(error, RaysweepError):
        return error
    LOG.debug("the wait for %s failed", job.run_id, exc_info=error)
    return WaitFailedError(job.job_id, one_line(f"{type(error).__name__}: {error}", 300))


async def _ends_within(client: JobsClient, job_id: str, grace_s: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_s
    while loop.time() < deadline:
        if (await client.info(job_id)).is_ended:
            return True
        await asyncio.sleep(min(FIRST_PAUSE_S, grace_s))
    return False


class _Watch:
    """Sees how a job is doing."""

    def __init__(self, client: JobsClient, job: RunningJob) -> None:
        self._client = client
        self._job = job
        self._log = ""
        self._pending_since: float | None = None
        self._has_noted = False

    async def look(self) -> RaysweepError | JobInfo | None:
        """The end of the job; None while it continues, the error where the cluster does not know it."""
        if not self._job.job_id:
            return ClusterLostError(
                self._job.address, f"there is no job of {self._job.run_id!r}", "submit it"
            )
        try:
            info = await self._client.info(self._job.job_id)
        except JobNotFoundError:
            return ClusterLostError(
                self._job.address,
                f"has forgotten job {self._job.job_id!r}: its head was restarted",
                "submit again with the same key: the sweep resumes",
            )
        self._note_pending(info)
        return info if info.is_ended else None

    async def patience_with(self, end: RaysweepError | JobInfo | None) -> float:
        """The time to wait for its outcome: longer for a job that says that there is one."""
        if end is None:
            return 0.0
        if isinstance(end, JobInfo) and (end.status == "SUCCEEDED" or has_outcome(await self._log_of(end))):
            return attach.LATE_S
        return attach.SETTLE_S

    async def error_of(self, end: RaysweepError | JobInfo, view: RunView) -> RaysweepError:
        """The error of a job that ended without an outcome."""
        if isinstance(end, RaysweepError):
            return end
        log = await self._log_of(end)
        if end.status == "SUCCEEDED" or has_outcome(log):
            return storage_not_shared(end.job_id, view.uri)
        if end.status == "STOPPED":
            return JobStoppedError(end.job_id)
        record = find_error(log)
        return decode_error(record, end.job_id) if record is not None else _untyped(end, log, self._job)

    async def _log_of(self, end: JobInfo) -> str:
        """The output of its driver, fetched once: it may be large."""
        if not self._log:
            with suppress(ClusterError):
                self._log = self._client.scrub(await self._client.logs(end.job_id))
        return self._log

    def _note_pending(self, info: JobInfo) -> None:
        if info.status != "PENDING":
            return
        now = asyncio.get_running_loop().time()
        self._pending_since = self._pending_since or now
        if now - self._pending_since > PENDING_NOTE_S and not self._has_noted:
            self._has_noted = True
            LOG.warning("job %s has not started yet: %s", info.job_id, one_line(info.message, 300))


def _untyped(end: JobInfo, log: str, job: RunningJob) -> RaysweepError:
    """The error of a driver that said nothing itself: it was killed, or never began."""
    lines = [line for line in log.splitlines() if line.strip()]
    said = one_line(lines[-1] if lines else end.message, 300)
    code = end.exit_code
    if end.error_type in _LASTING:
        return JobFailedError(
            end.job_id, f"it could not start: {said}", "check runtime_env and the resources"
        )
    if code is not None and code > 0 and code not in _KILLED:
        fix = "see its log; raysweep must be installed on the cluster, in this version"
        return JobFailedError(end.job_id, f"its driver ended with code {code}: {said}", fix)
    why = f"was killed (code {code})" if code is not None else f"is gone: {one_line(end.message, 200)}"
    return ClusterLostError(
        job.address, f"the driver of job {end.job_id!r} {why}", "submit again with the same key: it resumes"
    )


class _Heartbeats:
    """Gives each heartbeat once."""

    def __init__(self, view: RunView, take: OnProgress | None) -> None:
        self._view = view
        self._take = take
        self._last: SweepProgress | None = None

    async def newest(self) -> SweepProgress | None:
        """The newest one, if it is new and a caller takes it."""
        if self._take is None:
            return None
        progress = await stored(self._view.progress, self._view)
        if progress == self._last:
            return None
        self._last = progress
        return progress


@asynccontextmanager
async def leased(view: RunView, ttl_s: float | None) -> AsyncIterator[None]:
    """Renew the lease in the background, so that a cluster that answers slowly does not let it lapse."""
    if ttl_s is None:
        yield
        return
    task = asyncio.create_task(_renew(view, ttl_s))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _renew(view: RunView, ttl_s: float) -> None:
    while True:
        try:
            await on_thread(lambda: view.renew_lease(ttl_s), within_s=attach.READ_S)
        except Exception as error:  # noqa: BLE001  whatever it is, the next renewal may go well
            LOG.warning("the lease of %s could not be renewed: %s", view.run_id, error)
        # Of a long lease no more often than it needs: each renewal is a request to the storage.
        await asyncio.sleep(min(ttl_s / 4, max(MAX_PAUSE_S, ttl_s / 240)))
