"""Hooks of flows that run sweeps: a person who ends the flow run ends its sweeps; nothing else does.

    @flow(on_cancellation=[stop_sweeps], on_crashed=[stop_sweeps_if_aborted])

They run in the worker, after the flow's process has gone, and are given the flow run only: `records` says
which jobs it had. Prefect does not promise to run them; a sweep that they miss ends by its lease.

| what ends the flow run                                   | hook            | its sweeps         |
|----------------------------------------------------------|-----------------|--------------------|
| Cancel in the UI, `prefect flow-run cancel`              | on_cancellation | cancelled          |
| Ctrl-C to the flow's process, `sys.exit()` in its code   | on_crashed      | cancelled          |
| SIGTERM: eviction, reschedule, a worker that is replaced | on_crashed      | continue              |
| SIGKILL, out of memory, a lost node                      | on_crashed      | continue              |
| the server cannot be reached                             | on_crashed      | continue              |
| the worker dies; the flow's process continues without it   | none            | continue, then: lease |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow
from prefect.logging.loggers import flow_run_logger

from raysweep.jobs.sync import run_sync
from raysweep.step import Canceller
from raysweep_prefect.output import is_broken_pipe
from raysweep_prefect.records import NotedJob, noted_jobs

# What `prefect.states.exception_to_crashed_state` says of KeyboardInterrupt and SystemExit.
ABORTED: Final = (
    "Execution was aborted by an interrupt signal.",
    "Execution was aborted by Python system exit call.",
)
_AT_ONCE: Final = 8


def stop_sweeps(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """`on_cancellation`: stop the Ray jobs that the flow run waited for; their sweeps say `cancelled`."""
    _stop(flow, flow_run, lambda now: now.is_cancelling() or now.is_cancelled(), "was cancelled")


def stop_sweeps_if_aborted(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """`on_crashed`: stop the Ray jobs where a person, or the flow itself, ended the flow's process."""
    if not is_aborted(state):
        logger = flow_run_logger(flow_run, flow)
        logger.info("The flow run crashed; its sweeps continue. `prefect flow-run retry` attaches to them.")
        return
    _stop(flow, flow_run, State.is_crashed, "was aborted")


def is_aborted(state: State[Any]) -> bool:
    """True if a user ended it on purpose: no eviction, no lost node, no server out of reach."""
    return (state.message or "").startswith(ABORTED) and not is_broken_pipe(state.data)


def _stop(flow: Flow[..., Any], flow_run: FlowRun, is_meant: Callable[[State[Any]], bool], what: str) -> None:
    logger = flow_run_logger(flow_run, flow)
    with get_client(sync_client=True) as client:
        now = client.read_flow_run(UUID(str(flow_run.id)))
        if now.state is None or not is_meant(now.state):
            # Hooks may be late. It has been retried since: the jobs are that attempt's now.
            logger.info("The flow run is %s by now: its sweeps continue.", now.state_name)
            return
        jobs = noted_jobs(client, now.id, now.run_count)
    reason = f"flow run {now.name!r} {what}"

    async def stop_all() -> None:
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def stop(noted: NotedJob) -> None:
            to = partial(asyncio.to_thread, noted.connection)
            async with at_once:
                await Canceller(to=to, by="Prefect", log=logger).cancel_if_over(noted.job, lambda: reason)

        await asyncio.gather(*map(stop, jobs))

    run_sync(stop_all)
