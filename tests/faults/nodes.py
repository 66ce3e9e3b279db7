"""A cluster of several nodes on one machine, and drivers that run sweeps on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from raysweep.raycompat.patience import patient_start
from tests.engine.conftest import ROOT, Driver, session_of

# A dead node is seen after 1.2 s; with Ray's own settings it takes 14 s.
FAST_HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}


@contextmanager
def several_nodes(num_cpus: int = 0, **system_config: Any) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster` whose head runs no trials by default; tests add and remove nodes."""
    from ray.cluster_utils import Cluster

    config = FAST_HEALTH_CHECKS | system_config
    head = {"num_cpus": num_cpus, "include_dashboard": False, "_system_config": config}
    with patient_start():
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield cluster
        finally:
            cluster.shutdown()


def node_id(node: Any) -> str:
    """The id that Ray gave to a node of the cluster."""
    return str(node.node_id)


@contextmanager
def driving(spec: Any, address: str, key: str = "k") -> Iterator[Driver]:
    """A process that runs the sweep on the cluster; what is left of it is killed at the end."""
    arguments = json.dumps({"spec": spec.to_dict(), "key": key, "address": address})
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.driver", arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Driver(process)
    finally:
        for pid in session_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def read_log(path: Path) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in path.read_text().splitlines()]
