"""Wait for a job on behalf of whoever is not there any more, and say how it ended as JSON data."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from raysweep.errors import JobStoppedError, RaysweepError
from raysweep.jobs.attach import RunningJob, storage_not_shared
from raysweep.jobs.errorline import decode_error, encode_error, find_error
from raysweep.jobs.follow import OnProgress, cancel, wait
from raysweep.runs.view import Outcome
from raysweep.step.cancelling import Connect

LOG: Final = logging.getLogger("raysweep.step")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the wait for a job ended; `to_dict` and `from_dict` carry it to the process that goes on."""

    job: RunningJob
    how: Literal["ended", "timeout", "error"]
    error: Mapping[str, Any] | None = None
    limit: str = ""
    """The name of the limit that was reached."""

    @classmethod
    def of_error(cls, job: RunningJob, error: BaseException) -> Self:
        """Of a wait that failed, with whatever."""
        return cls(job=job, how="error", error=find_error(encode_error(error)))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {"end": self.how, "job": self.job.to_dict(), "error": self.error, "limit": self.limit}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """From what `to_dict` made."""
        job = RunningJob.from_dict(fields["job"])
        return cls(job=job, how=fields["end"], error=fields["error"], limit=fields["limit"])

    def result(self, *, again: str = "run it again") -> Outcome | RaysweepError:
        """The outcome, read where it is stored, or the error in its stead: what `complete` takes.

        Args:
            again: How a person goes on after a limit, in the orchestrator's words.
        """
        if self.error is not None:
            return decode_error(self.error, self.job.job_id)
        view = self.job.view()
        outcome = view.outcome()
        if self.how == "timeout" and (outcome is None or outcome.status == "cancelled"):
            note = f"{self.limit} is over; {again} to go on with it, or give it more time"
            return JobStoppedError(self.job.job_id, note)
        return outcome or storage_not_shared(self.job.job_id, view.uri)


async def wait_for_end(
    job: RunningJob,
    *,
    to: Connect,
    by: str,
    on_progress: OnProgress | None = None,
    lease_ttl_s: float | None = None,
    ends_at: float | None = None,
    limit: str = "",
    log: Any = LOG,
) -> End:
    """Wait for the end of a job, and say how it came; raises nothing but `CancelledError`.

    Args:
        job: What `Step.submit` returned.
        to: Connects to the cluster.
        by: Who cancels it at its limit, for people.
        on_progress: Called with each new heartbeat.
        lease_ttl_s: Renew the job's lease meanwhile; what `JobOptions.lease_ttl_s` was.
        ends_at: When the job is cancelled, in UTC seconds; default: never.
        limit: What that comes from, for people: `execution_timeout of 1:00:00`.
        log: Takes what people should know.
    """
    try:
        cluster = await to()
        left_s = None if ends_at is None else max(0.0, ends_at - time.time())
        try:
            waiting = wait(job, to=cluster, on_progress=on_progress, lease_ttl_s=lease_ttl_s)
            await asyncio.wait_for(waiting, left_s)
        except TimeoutError:
            log.warning("%s is over: cancelling job %s", limit, job.job_id)
            await cancel(job, to=cluster, reason=f"{limit} is over", by=by)
            return End(job=job, how="timeout", limit=limit)
        return End(job=job, how="ended")
    except RaysweepError as error:
        return End.of_error(job, error)
    except Exception as error:
        # Where it is raised again, it has lost its class and its text.
        log.exception("the wait for %s failed", job.run_id)
        return End.of_error(job, error)
