"""Wait for a job in place of a process that has left, and return its end as JSON data."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from raysweep.errors import JobStoppedError, RaysweepError, SpecChangedError, WaitFailedError
from raysweep.jobs import attach
from raysweep.jobs.attach import RunningJob, settled_outcome, storage_not_shared
from raysweep.jobs.errorline import decode_error, encode_error, find_error
from raysweep.jobs.follow import FIRST_PAUSE_S, MAX_PAUSE_S, OnProgress, leased, wait
from raysweep.jobs.patience import REFUSED_S, UNREACHABLE_S, Patience
from raysweep.jobs.same import stored_changes
from raysweep.jobs.sync import run_sync
from raysweep.runs.reading.view import Outcome
from raysweep.step.cancelling import Connect, cancel_anyway
from raysweep.threads import on_thread

LOG: Final = logging.getLogger("raysweep.step")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of the wait for a job; `to_dict` and `from_dict` carry it to the process that continues."""

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
        """The end that `to_dict` wrote."""
        job = RunningJob.from_dict(fields["job"])
        return cls(job=job, how=fields["end"], error=fields["error"], limit=fields["limit"])

    def result(self, *, again: str = "run it again") -> Outcome | RaysweepError:
        """The outcome, read where it is stored, or the error in its stead: what `complete` takes.

        Args:
            again: How a person continues after a limit, in the orchestrator's words.
        """
        if self.error is not None:
            return decode_error(self.error, self.job.job_id)
        view = self.job.view()
        # Who waited, elsewhere, has seen it: here it may be seen later.
        within_s = attach.LATE_S if self.how == "ended" else attach.SETTLE_S
        outcome = run_sync(lambda: settled_outcome(view, within_s=within_s))
        changed = stored_changes(view, self.job.spec) if outcome is not None else ()
        if changed:
            return SpecChangedError(self.job.run_id, changed)
        if self.how == "timeout" and (outcome is None or outcome.status == "cancelled"):
            note = f"{self.limit} is over; {again} to resume it, or give it more time"
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
    scope = asyncio.timeout(None if ends_at is None else max(0.0, ends_at - time.time()))
    try:
        async with _leased(job, lease_ttl_s), scope:
            await _wait(job, to, on_progress, log)
        return End(job=job, how="ended")
    except TimeoutError as error:
        if not scope.expired():  # a time limit of something else, as sockets have
            return End.of_error(job, WaitFailedError(job.job_id, f"TimeoutError: {error}"))
        log.warning("%s is over: cancelling job %s", limit, job.job_id)
        await _cancel(job, to, f"{limit} is over", by, log)
        return End(job=job, how="timeout", limit=limit)
    except RaysweepError as error:
        return End.of_error(job, error)
    except Exception as error:
        # Where it is raised again, it has lost its class and its text.
        log.exception("the wait for %s failed", job.run_id)
        return End.of_error(job, WaitFailedError(job.job_id, f"{type(error).__name__}: {error}"))


async def _wait(job: RunningJob, to: Connect, on_progress: OnProgress | None, log: Any) -> None:
    """Connect and wait; what fails on this side, and what keeps the connection, is borne for a while."""
    patience = Patience(UNREACHABLE_S, REFUSED_S)
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            cluster = await to()
        except RaysweepError as error:
            patience.spend(error)
        except Exception as error:  # noqa: BLE001  whatever it is (EMFILE, a 503, …), it may pass
            patience.spend(WaitFailedError(job.job_id, f"{type(error).__name__}: {error}"))
        else:
            began = time.monotonic()
            try:
                # It was let in when it submitted: a token that was rotated may be known here minutes later.
                await wait(job, to=cluster, on_progress=on_progress, refused_s=UNREACHABLE_S)
                return
            except (RaysweepError, asyncio.CancelledError):
                raise  # what passes has been borne by the wait
            except Exception as error:
                log.warning("the wait for %s failed, and begins again", job.run_id, exc_info=True)
                if time.monotonic() - began > UNREACHABLE_S:
                    patience.renew()
                patience.spend(WaitFailedError(job.job_id, f"{type(error).__name__}: {error}"))
        await asyncio.sleep(pause_s)
        pause_s = min(MAX_PAUSE_S, pause_s * 1.5)


@asynccontextmanager
async def _leased(job: RunningJob, ttl_s: float | None) -> AsyncIterator[None]:
    """Renew the lease also while it is not known how to reach the cluster."""
    if ttl_s is None:
        yield
        return
    async with leased(await on_thread(job.view, within_s=attach.READ_S), ttl_s):
        yield


async def _cancel(job: RunningJob, to: Connect, reason: str, by: str, log: Any) -> None:
    try:
        await cancel_anyway(job, to=to, reason=reason, by=by)
    except Exception:
        log.exception("job %s was not cancelled: `raysweep cancel` does it", job.job_id)
