"""Flows of a user's own, as deployments of the tests: one that starts runs of another, one that logs."""

from __future__ import annotations

import time
from typing import Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.logging import get_run_logger

from raysweep_prefect import stop_sweeps, stop_sweeps_if_aborted, sweep
from tests.orchestrators.prefect import BLOCK

HOOKS: dict[str, Any] = {"on_cancellation": [stop_sweeps], "on_crashed": [stop_sweeps_if_aborted]}


@flow(name="own-child", **HOOKS)
def child(spec: dict[str, Any]) -> str:
    """A sweep without a key, beside other work that logs."""
    running = sweep.submit(spec, cluster=BLOCK)
    while not running.state.is_final():
        get_run_logger().info("other work")
        time.sleep(1)
    return str(running.result().status)


@flow(name="own-parent", **HOOKS)
def parent(deployment: str, runs: list[dict[str, Any]]) -> list[str]:
    """Starts a run of a deployment for each of these parameters, and waits for all of them."""
    started = [run_deployment(deployment, parameters=each, timeout=0) for each in runs]
    while True:
        with get_client(sync_client=True) as client:
            states = [client.read_flow_run(run.id).state for run in started]
        if all(state is not None and state.is_final() for state in states):
            return [state.type.value for state in states if state is not None]
        time.sleep(1)
