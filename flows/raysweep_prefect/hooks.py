"""Hooks of flows that run sweeps: a person who ends the flow run ends its sweeps; nothing else does.

    @flow(on_cancellation=[stop_sweeps], on_crashed=[stop_sweeps_if_aborted])

They run in the worker, after the flow's process has gone, and are given the flow run only: `records` says
which jobs it had. Prefect does not promise to run them; a sweep that they miss ends by its lease.

| what ends the flow run                                   | hook            | its sweeps         |
|----------------------------------------------------------|-----------------|--------------------|
| Cancel in the UI, `prefect flow-run cancel`              | on_cancellation | cancelled          |
| Ctrl-C to the flow's process, `sys.exit()` in its code   | on_crashed      | cancelled          |
| SIGTERM: eviction, reschedule, a worker that is replaced | on_crashed      | go on              |
| SIGKILL, out of memory, a lost node                      | on_crashed      | go on              |
| the server cannot be reached                             | on_crashed      | go on              |
| the worker dies                                          | none            | go on, then: lease |
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow
from prefect.logging.loggers import flow_run_logger

from raysweep.errors import ClusterError, RaysweepError, SpecError, StorageError
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.sync import Cluster
from raysweep.runs.view import RunView
from raysweep_prefect.clusters import load_cluster
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
        logger.info("The flow run crashed; its sweeps go on. `prefect flow-run retry` attaches to them.")
        return
    _stop(flow, flow_run, State.is_crashed, "was aborted")


def is_aborted(state: State[Any]) -> bool:
    """Whether somebody ended it on purpose: no eviction, no lost node, no server out of reach."""
    return (state.message or "").startswith(ABORTED)


def cancel_job(noted: NotedJob, reason: str) -> bool:
    """Stop this very job, never a later one of the same sweep; whether it was running.

    A cluster that cannot be reached is no way out: the sweep's controller is asked through the storage.

    Raises: ClusterError, StorageError.
    """
    try:
        connection = (
            load_cluster(noted.block).get_connection()
            if noted.block
            else ClusterConnection.of(noted.job.address)
        )
        return Cluster(connection).cancel(noted.job, reason=reason, by="Prefect")
    except (ClusterError, SpecError):
        if noted.job.kind != "sweep":
            raise
        RunView(noted.job.kind, noted.job.storage_path, noted.job.run_id).ask_to_cancel(reason, "Prefect")
        return True


def _stop(flow: Flow[..., Any], flow_run: FlowRun, is_meant: Callable[[State[Any]], bool], what: str) -> None:
    logger = flow_run_logger(flow_run, flow)
    with get_client(sync_client=True) as client:
        now = client.read_flow_run(UUID(str(flow_run.id)))
        if now.state is None or not is_meant(now.state):
            # Hooks may be late. Somebody has retried it since: the jobs are that attempt's now.
            logger.info("The flow run is %s by now: its sweeps go on.", now.state_name)
            return
        jobs = noted_jobs(client, now.id, now.run_count)
    reason = f"flow run {now.name!r} {what}"

    def stop(noted: NotedJob) -> None:
        try:
            was_running = cancel_job(noted, reason)
        except (RaysweepError, StorageError) as error:
            logger.error("Job %s was not stopped, its lease will end it: %s", noted.job.job_id, error)
            return
        logger.info("Job %s: %s", noted.job.job_id, "stopped" if was_running else "had ended")

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        list(pool.map(stop, jobs))
