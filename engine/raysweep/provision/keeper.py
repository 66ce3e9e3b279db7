"""The job that keeps a night's cluster: it ends once no other job has run there for a while.

    python -m raysweep.provision.keeper --idle-s 900

KubeRay starts it on the head as the job of the RayJob, and deletes the cluster after its end. It asks the
Jobs API of its own head only, needs no access to Kubernetes, and knows nothing of the process that asked for
the cluster. Jobs that are no sweeps count too.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from raysweep.errors import RaysweepError
from raysweep.jobs.client import JobsClient
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.wire import JobInfo

LOG: Final = logging.getLogger("raysweep.keeper")
MODULE: Final = "raysweep.provision.keeper"
DASHBOARD: Final = "http://127.0.0.1:8265"
PAUSE_S: Final = 10.0


def is_busy(jobs: Iterable[JobInfo]) -> bool:
    """True if a job other than a keeper runs, or waits to run."""
    return any(not job.is_ended and MODULE not in job.entrypoint for job in jobs)


async def keep(
    jobs: Callable[[], Awaitable[Iterable[JobInfo]]],
    *,
    idle_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Return once no job has run for `idle_s` seconds. While the head does not answer, no time counts.

    Args:
        jobs: Asks for the jobs of the cluster; may raise RaysweepError.
        idle_s: The limit.
        clock: Monotonic seconds.
        sleep: Waits.
    """
    idle_since = clock()
    asked_at = clock()
    while True:
        try:
            is_at_work = is_busy(await jobs())
        except RaysweepError as error:
            LOG.warning("the head does not answer: %s", error)
            idle_since += clock() - asked_at
        else:
            if is_at_work:
                idle_since = clock()
            elif clock() - idle_since >= idle_s:
                return
        asked_at = clock()
        await sleep(min(PAUSE_S, idle_s / 4))


async def _run(idle_s: float, dashboard: str) -> None:
    loop = asyncio.get_running_loop()
    async with JobsClient(ClusterConnection(address=dashboard, trust_env=False)) as client:
        await keep(client.jobs, idle_s=idle_s, clock=loop.time, sleep=asyncio.sleep)


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep the cluster; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description="Ends once the cluster is idle.")
    parser.add_argument("--idle-s", type=float, default=900.0)
    parser.add_argument("--dashboard", default=DASHBOARD)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(_run(given.idle_s, given.dashboard))
    LOG.info("no job has run for %.0f s: the cluster can end", given.idle_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
