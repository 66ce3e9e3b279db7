"""Cancel jobs that are not wanted any more, and no others. A kill leaves a state, which decides.

The request goes to the storage first, and names the job: its driver finds it also where the cluster cannot be
reached from here, and also where it starts only afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raysweep.errors import JobStoppedError
from raysweep.jobs.attach import RunningJob
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.follow import CANCEL_GRACE_S, ask_to_cancel, end_job
from raysweep.threads import on_thread

TRIES: Final = 5
PAUSE_S: Final = 2.0
ANSWER_S: Final = 20.0
"""The time for a cluster to answer, beside the grace of the controller, once its driver was asked."""

Connect = Callable[[], Awaitable[ClusterConnection]]


def connected(cluster: ClusterConnection) -> Connect:
    """Connects to a cluster that is known already."""

    async def connect() -> ClusterConnection:
        return cluster

    return connect


class Intent:
    """That a step is to run as a job: it can be called off at every moment, from any thread.

    Give `announce` to `Step.submit`. What is called off before that is not submitted; from then on the job is
    known by its handle, and a request that names it reaches its driver.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._job: RunningJob | None = None
        self._why = ""

    @property
    def why_off(self) -> str:
        """The reason why it was called off; empty where it was not."""
        with self._lock:
            return self._why

    def announce(self, job: RunningJob) -> None:
        """This job is about to be submitted, or attached to. Raises: JobStoppedError after `call_off`."""
        with self._lock:
            if self._why:
                raise JobStoppedError(job.job_id, f"{self._why} before it was submitted")
            self._job = job

    def call_off(self, why: str) -> RunningJob | None:
        """Submit no job from now on; the one that was announced before, which is to be cancelled."""
        with self._lock:
            self._why = why
            return self._job


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceller:
    """Cancels a step's jobs that are not wanted any more. Nothing raises: no caller waits for it."""

    to: Connect
    """Connects to the cluster."""
    by: str
    """The name of the person or process that cancels, for people."""
    log: Any
    """Takes what was done."""
    grace_s: float = CANCEL_GRACE_S
    """The time that the controller has before Ray stops the job."""

    async def call_off_if_over(self, intent: Intent, why: Callable[[], str]) -> None:
        """As `cancel_if_over`, of a step whose job may not be submitted yet."""
        try:
            reason = await _patiently(why)
            job = intent.call_off(reason) if reason else None
        except Exception:
            self.log.exception("it is not known whether the step is still wanted: it continues")
            return
        if job is not None:
            await self.cancel_if_over(job, lambda: reason)
        elif reason:
            self.log.warning("%s: nothing is submitted", reason)

    async def cancel_if_over(self, job: RunningJob, why: Callable[[], str]) -> None:
        """Cancel a job if its orchestrator wants nothing more of it.

        Args:
            job: The job.
            why: Asks the orchestrator, and may block: why the job is not wanted; empty where it is. Where
                that cannot be found out, the job continues.
        """
        try:
            reason = await _patiently(why)
            if not reason:
                self.log.info(
                    "job %s continues: it is still wanted, and the next try attaches to it", job.job_id
                )
                return
            self.log.warning("%s: cancelling job %s", reason, job.job_id)
            was_running = await cancel_anyway(
                job, to=self.to, reason=reason, by=self.by, grace_s=self.grace_s
            )
            self.log.info("job %s %s", job.job_id, "was cancelled" if was_running else "had ended")
        except Exception:
            self.log.exception("job %s was not cancelled: `raysweep cancel` does it", job.job_id)

    async def cancel_superseded(self, earlier: Any, now: RunningJob) -> None:
        """Cancel the job of another run that the step had before, as what it was given has changed since.

        Args:
            earlier: What the step remembers: `RunningJob.to_dict`, with whatever else beside it; or nothing.
            now: The job that it has now.
        """
        names = RunningJob.__dataclass_fields__
        if not isinstance(earlier, Mapping) or not earlier.get("job_id"):
            return
        if earlier.get("run_id") == now.run_id:
            return
        try:
            job = RunningJob.from_dict({name: value for name, value in earlier.items() if name in names})
        except TypeError:
            self.log.warning("job %s was remembered otherwise, and is left alone", earlier["job_id"])
            return
        reason = f"its step was given something else since, and runs {now.run_id}"
        await self.cancel_if_over(job, lambda: reason)


async def cancel_anyway(
    job: RunningJob, *, to: Connect, reason: str, by: str, grace_s: float = CANCEL_GRACE_S
) -> bool:
    """Cancel this very job, never a later one of the same run; whether it was running.

    Its driver is asked through the storage first, before anybody asks how to reach its cluster. A cluster
    that cannot be reached at once is tried again; after that the driver is left to itself.

    Raises: what connecting or the cluster raises, where the storage could not be reached either.
    """
    was_asked = False
    for left in reversed(range(TRIES)):
        was_asked = was_asked or await ask_to_cancel(job, reason=reason, by=by)
        try:
            # Its driver ends it: who asked that need not wait for a cluster that hangs.
            async with asyncio.timeout(grace_s + ANSWER_S if was_asked else None):
                return await end_job(job, to=await to(), was_asked=was_asked, grace_s=grace_s)
        except Exception as error:
            if was_asked and isinstance(error, TimeoutError):
                return True
            if not left and not was_asked:
                raise
        if left:
            await asyncio.sleep(PAUSE_S)
    return True


async def _patiently(ask: Callable[[], str]) -> str:
    for _ in range(TRIES - 1):
        try:
            return await on_thread(ask)
        except Exception:  # noqa: BLE001  whatever it is, it may pass
            await asyncio.sleep(PAUSE_S)
    return await on_thread(ask)
