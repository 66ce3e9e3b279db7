"""The trigger: waits for a sweep in Airflow's triggerer, while its task holds no worker slot.

It may run twice at once, and be killed at any time: it only looks. It never raises, as a trigger that does
loses its error's class; whatever happens comes back in its event, and the task raises it. When Airflow says
that the task was killed, it asks for the task's state before it believes that (`on_kill`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent

from raysweep.jobs import ClusterConnection, RunningJob
from raysweep.jobs.follow import CANCEL_GRACE_S
from raysweep.jobs.notes import ProgressLines
from raysweep.provision.document import NightCluster
from raysweep.provision.night import connect
from raysweep.step import Canceller, connected, wait_for_end
from raysweep_airflow.hooks import RaySweepHook
from raysweep_airflow.identity import TaskId

SETTLE_S: Final = 8.0
"""Nothing fires so soon after the task was deferred: the scheduler might take it for a failure."""
# A stop that has begun is finished, even where no caller waits for it any more.
_stops: set[asyncio.Task[None]] = set()

Event = dict[str, Any]


class SweepTrigger(BaseTrigger):
    """Fires once a sweep, or a training run, has ended.

    Its event is a `raysweep.step.End` as JSON data.

    Args:
        job: The job to wait for, as `RunningJob.to_dict` makes it.
        conn_id: The connection of the cluster.
        task: Whose job it is, as `TaskId.to_dict` makes it.
        fire_after: Fire no sooner than this, in UTC seconds.
        ends_at: Cancel it then, in UTC seconds; None: never.
        limit: What `ends_at` comes from, for people.
        lease_ttl_s: Renew the job's lease meanwhile; see `JobOptions`.
        night: The fields of the `NightCluster` that was brought up for the task, instead of a connection.
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
        night: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = RunningJob.from_dict(job)
        self.conn_id = conn_id
        self.task_of = TaskId(**task)
        self.fire_after = fire_after
        self.ends_at = ends_at
        self.limit = limit
        self.lease_ttl_s = lease_ttl_s
        self.night = NightCluster.of(night)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        fields = {
            "job": self.job.to_dict(),
            "conn_id": self.conn_id,
            "task": self.task_of.to_dict(),
            "fire_after": self.fire_after,
            "ends_at": self.ends_at,
            "limit": self.limit,
            "lease_ttl_s": self.lease_ttl_s,
            "night": self.night.model_dump() if self.night is not None else None,
        }
        return "raysweep_airflow.triggers.SweepTrigger", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        event = await self.follow()
        await asyncio.sleep(max(0.0, self.fire_after - time.time()))
        # Nothing may come after it: one that lingers is cancelled as if the task had been killed.
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def follow(self, cluster: ClusterConnection | None = None) -> Event:
        """Wait for the end, and say how it came; never raises. Also for tasks that are not deferred."""
        end = await wait_for_end(
            self.job,
            to=self._connect if cluster is None else connected(cluster),
            by=self.task_of.canceller,
            on_progress=ProgressLines(self.log.info),
            lease_ttl_s=self.lease_ttl_s,
            ends_at=self.ends_at,
            limit=self.limit,
            log=self.log,
        )
        return end.to_dict()

    async def stop_if_over(
        self, cluster: ClusterConnection | None = None, grace_s: float = CANCEL_GRACE_S
    ) -> None:
        """Cancel the job if the task's state says that it is not wanted any more; never raises."""
        to = self._connect if cluster is None else connected(cluster)
        canceller = Canceller(to=to, by=self.task_of.canceller, log=self.log, grace_s=grace_s)
        await canceller.cancel_if_over(self.job, self.task_of.why_over)

    async def on_kill(self) -> None:
        """Cancel the job if the task's state says that it is not wanted any more.

        Airflow calls this also when the task was cleared, and when another triggerer has it by now; and it
        gives it about a second. So the stop continues alone, and first asks for the state.
        """
        stop = asyncio.create_task(self.stop_if_over())
        _stops.add(stop)
        stop.add_done_callback(_stops.discard)
        await asyncio.shield(stop)

    async def _connect(self) -> ClusterConnection:
        if self.night is not None:
            return await connect(self.night, self.job.run_id)
        return (await RaySweepHook(self.conn_id).aaccess(was_there=True)).cluster
