"""Cancel what nobody wants any more, and only that: who kills a step leaves a state, which is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from raysweep.errors import ClusterError, SpecError
from raysweep.jobs.attach import RunningJob
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.follow import CANCEL_GRACE_S, cancel

TRIES: Final = 5
PAUSE_S: Final = 2.0

Connect = Callable[[], Awaitable[ClusterConnection]]


def connected(cluster: ClusterConnection) -> Connect:
    """Connects to a cluster that is known already."""

    async def connect() -> ClusterConnection:
        return cluster

    return connect


async def cancel_if_over(
    job: RunningJob,
    *,
    why: Callable[[], str],
    to: Connect,
    by: str,
    log: Any,
    grace_s: float = CANCEL_GRACE_S,
) -> None:
    """Cancel a job if its orchestrator wants nothing more of it; never raises, as nobody waits for this.

    Args:
        job: The job.
        why: Asks the orchestrator, and may block: why the job is not wanted; empty where it is. Where that
            cannot be found out, the job goes on.
        to: Connects to the cluster.
        by: Who cancels, for people.
        log: Takes what was done.
        grace_s: How long the controller has before Ray stops the job.
    """
    try:
        reason = await _patiently(why)
        if not reason:
            log.info("job %s goes on: it is still wanted, and the next try attaches to it", job.job_id)
            return
        log.warning("%s: cancelling job %s", reason, job.job_id)
        was_running = await cancel_anyway(job, to=to, reason=reason, by=by, grace_s=grace_s)
        log.info("job %s %s", job.job_id, "was cancelled" if was_running else "had ended")
    except Exception:
        log.exception("job %s was not cancelled: `raysweep cancel` does it", job.job_id)


async def cancel_superseded(
    earlier: Any, now: RunningJob, *, to: Connect, by: str, log: Any, grace_s: float = CANCEL_GRACE_S
) -> None:
    """Cancel the job of another run that the same step had before, as what it was given has changed since.

    Never raises.

    Args:
        earlier: What the step remembers: `RunningJob.to_dict`, with whatever else beside it; or nothing.
        now: The job that it has now.
        to: Connects to the cluster.
        by: Who cancels, for people.
        log: Takes what was done.
        grace_s: As in `cancel_if_over`.
    """
    names = RunningJob.__dataclass_fields__
    if not isinstance(earlier, Mapping) or not earlier.get("job_id") or earlier.get("run_id") == now.run_id:
        return
    try:
        job = RunningJob.from_dict({name: value for name, value in earlier.items() if name in names})
    except TypeError:
        log.warning("job %s was remembered otherwise, and is left alone", earlier["job_id"])
        return
    reason = f"its step was given something else since, and runs {now.run_id}"
    await cancel_if_over(job, why=lambda: reason, to=to, by=by, log=log, grace_s=grace_s)


async def cancel_anyway(
    job: RunningJob, *, to: Connect, reason: str, by: str, grace_s: float = CANCEL_GRACE_S
) -> bool:
    """Cancel this very job, never a later one of the same run; whether it was running.

    Where its cluster cannot be reached, a sweep's controller is asked through the storage.

    Raises: ClusterError, SpecError, StorageError.
    """
    try:
        return await cancel(job, to=await to(), reason=reason, by=by, grace_s=grace_s)
    except (ClusterError, SpecError):
        if job.kind != "sweep":
            raise
        view = await asyncio.to_thread(job.view)
        await asyncio.to_thread(view.ask_to_cancel, reason, by)
        return True


async def _patiently(ask: Callable[[], str]) -> str:
    for _ in range(TRIES - 1):
        try:
            return await asyncio.to_thread(ask)
        except Exception:  # noqa: BLE001  whatever it is, it may pass
            await asyncio.sleep(PAUSE_S)
    return await asyncio.to_thread(ask)
