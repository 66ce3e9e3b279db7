"""The trigger: waits for a sweep in Airflow's triggerer, while its task holds no worker slot.

It may run twice at once, and be killed at any time: it only looks. It never raises, as a trigger that does
loses its error's class; whatever happens comes back in its event, and the task raises it. When Airflow says
that the task was killed, it asks for the task's state before it believes that (`on_kill`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent

from raysweep.errors import RaysweepError
from raysweep.jobs import ClusterConnection, RunningJob, cancel, wait
from raysweep.jobs.errorline import encode_error, find_error
from raysweep.outcome import SweepProgress
from raysweep.show import show_progress
from raysweep_airflow.hooks import RaySweepHook
from raysweep_airflow.identity import TaskId, is_over

SETTLE_S: Final = 8.0
"""Nothing fires so soon after the task was deferred: the scheduler might take it for a failure."""
PROGRESS_S: Final = 60.0
"""No more than one line of progress in so many seconds."""
STATE_TRIES: Final = 5
STATE_PAUSE_S: Final = 2.0
# A stop that has begun is finished, even where nobody waits for it any more.
_stops: set[asyncio.Task[None]] = set()

Event = dict[str, Any]


class SweepTrigger(BaseTrigger):
    """Fires once a sweep, or a training run, has ended.

    Its event: `job` (a `RunningJob`), `end` ("ended", "timeout", "error"), `error` (of the last), `limit`.

    Args:
        job: The job to wait for, as `RunningJob.to_dict` makes it.
        conn_id: The connection of the cluster.
        task: Whose job it is, as `TaskId.to_dict` makes it.
        fire_after: Fire no sooner than this, in UTC seconds.
        ends_at: Cancel it then, in UTC seconds; None: never.
        limit: What `ends_at` comes from, for people.
        lease_ttl_s: Renew the job's lease meanwhile; see `JobOptions`.
    """

    def __init__(
        self,
        job: Mapping[str, Any],
        conn_id: str,
        task: Mapping[str, Any],
        fire_after: float = 0.0,
        ends_at: float | None = None,
        limit: str = "",
        lease_ttl_s: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = RunningJob.from_dict(job)
        self.conn_id = conn_id
        self.task_of = TaskId(**task)
        self.fire_after = fire_after
        self.ends_at = ends_at
        self.limit = limit
        self.lease_ttl_s = lease_ttl_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        fields = {
            "job": self.job.to_dict(),
            "conn_id": self.conn_id,
            "task": self.task_of.to_dict(),
            "fire_after": self.fire_after,
            "ends_at": self.ends_at,
            "limit": self.limit,
            "lease_ttl_s": self.lease_ttl_s,
        }
        return "raysweep_airflow.triggers.SweepTrigger", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        event = await self.follow()
        await asyncio.sleep(max(0.0, self.fire_after - time.time()))
        # Nothing may come after it: one that lingers is cancelled as if somebody had killed the task.
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def follow(self, cluster: ClusterConnection | None = None) -> Event:
        """Wait for the end, and say how it came; never raises. Also for tasks that are not deferred."""
        try:
            cluster = cluster or (await RaySweepHook(self.conn_id).aaccess()).cluster
            return await self._wait(cluster)
        except RaysweepError as error:
            return self._event("error", error)
        except Exception as error:
            # One that is raised here loses its class and its text.
            self.log.exception("the wait for %s failed", self.job.run_id)
            return self._event("error", error)

    async def _wait(self, cluster: ClusterConnection) -> Event:
        waiting = wait(
            self.job,
            to=cluster,
            on_progress=ProgressLines(self.log.info),
            lease_ttl_s=self.lease_ttl_s,
        )
        left_s = None if self.ends_at is None else max(0.0, self.ends_at - time.time())
        try:
            await asyncio.wait_for(waiting, left_s)
        except TimeoutError:
            self.log.warning("%s is over: cancelling job %s", self.limit, self.job.job_id)
            await cancel(
                self.job, to=cluster, reason=f"{self.limit} is over", by=f"Airflow: {self.task_of.key}"
            )
            return self._event("timeout")
        return self._event("ended")

    def _event(self, end: str, error: BaseException | None = None) -> Event:
        record = find_error(encode_error(error)) if error is not None else None
        return {"end": end, "job": self.job.to_dict(), "error": record, "limit": self.limit}

    async def on_kill(self) -> None:
        """Cancel the job if the task's state says that nobody wants it any more.

        Airflow calls this also when the task was cleared, and when another triggerer has it by now; and it
        gives it about a second. So the stop goes on alone, and first asks for the state.
        """
        stop = asyncio.create_task(self._stop_if_over())
        _stops.add(stop)
        stop.add_done_callback(_stops.discard)
        await asyncio.shield(stop)

    async def _stop_if_over(self) -> None:
        try:
            state = await self._state()
            if not is_over(state):
                self.log.info("task is %s: job %s goes on", state or "to be run again", self.job.job_id)
                return
            reason = f"its task was marked {state} in Airflow"
            self.log.warning("task is %s: cancelling job %s", state, self.job.job_id)
            access = await RaySweepHook(self.conn_id).aaccess()
            await cancel(self.job, to=access.cluster, reason=reason, by=f"Airflow: {self.task_of.key}")
        except Exception:
            # Nobody waits for this: here, or never. A job whose task's state is not known goes on.
            self.log.exception("job %s could not be cancelled: raysweep cancel does it", self.job.job_id)

    async def _state(self) -> str | None:
        for number in range(STATE_TRIES):
            try:
                return await asyncio.to_thread(self.task_of.state)
            except Exception:
                if number == STATE_TRIES - 1:
                    raise
                await asyncio.sleep(STATE_PAUSE_S)
        return None


class ProgressLines:
    """Says how a sweep is doing, at most once in `PROGRESS_S`: the first time at once."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._said_at = -PROGRESS_S
        self._last = ""

    def __call__(self, progress: SweepProgress) -> None:
        text = progress_line(progress)
        if text != self._last and self._clock() - self._said_at >= PROGRESS_S:
            self._said_at, self._last = self._clock(), text
            self._say(text)


def progress_line(progress: SweepProgress) -> str:
    """`running: 12 of 50 trials ended: 12 done, 4 running; best auc 0.93 (trial 00007)`."""
    return f"{progress.status}: {show_progress(progress, has_config=False)}"
