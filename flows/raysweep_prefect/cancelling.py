"""Ends a flow run that a person cancels, where nothing else does.

Prefect's worker ends the process of such a run, and marks it Cancelled. Where that process ended by itself
before the worker looked, or where no worker runs it, the run would stay Cancelling.
"""

from __future__ import annotations

import time
from typing import Final

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import Abort
from prefect.states import Cancelled

from raysweep_prefect.identity import Asker

WORKER_S: Final = 20.0
"""The time for a worker to end the process: it calls the flow's hooks then."""
PAUSE_S: Final = 0.5
TIMEOUT_S: Final = 20.0


class RunCancelledError(Abort):
    """A person cancelled the flow run: its state stays as it is."""


def leave_cancelled(asker: Asker | None, why: str) -> None:
    """Give the worker of a cancelled flow run time to end it, then mark it Cancelled.

    A subflow is left to its parent. A server that does not respond for `WORKER_S` is left alone.

    Raises: RunCancelledError: It is Cancelled.
    """
    if asker is None or asker.flow_run_id != asker.owner_id:
        return
    until = time.monotonic() + WORKER_S
    while True:
        is_over = time.monotonic() >= until
        try:
            with get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True) as client:
                now = client.read_flow_run(asker.owner_id)
                if now.state is None or now.run_count != asker.attempt:
                    return
                if now.state.is_cancelling() and (is_over or not _has_worker(now)):
                    client.set_flow_run_state(now.id, Cancelled(message=why), force=True)
                elif not now.state.is_cancelling():
                    if now.state.is_cancelled():
                        raise RunCancelledError(why)
                    return
        except Exception:  # noqa: BLE001  the server is away: the run has ended all the same
            if is_over:
                return
        time.sleep(PAUSE_S)


def _has_worker(run: FlowRun) -> bool:
    return run.infrastructure_pid is not None or run.work_pool_name is not None
