"""Runs on the loopback cluster: RayJobs of earlier runs, and the end of a job."""

from __future__ import annotations

import threading
import time
from typing import Any

from raysweep.jobs.attach import RunningJob
from raysweep.provision import NightCluster
from raysweep.provision.manifest import read_manifest, render
from raysweep.specs import RunRequest, SweepSpec
from tests.unit.jobs.attaching import finish
from tests.unit.provision.kube import Kube

KEY = "2026-11-27"
RUN = "flights-0123456789"


def put(kube: Kube, night: NightCluster, run_id: str = RUN, *, at: float | None = None, **status: Any) -> str:
    """A RayJob that raysweep created earlier; its uid."""
    job = render(
        read_manifest(night.manifest),
        night,
        run_id=run_id,
        namespace="ml",
        now=time.time() if at is None else at,
    )
    return str(kube.put(job, **status)["metadata"]["uid"])


def finish_soon(kube: Kube, spec: SweepSpec, **how: Any) -> threading.Thread:
    """The driver of the first job ends: the head's jobs are only names."""

    def run() -> None:
        for _ in range(1000):
            if kube.head.jobs:
                break
            time.sleep(0.01)
        (job_id,) = kube.head.jobs
        request = RunRequest.of(spec, KEY)
        job = RunningJob(
            address="",
            kind="sweep",
            run_id=request.run.id,
            key=KEY,
            storage_path=spec.storage_path,
            job_id=job_id,
            number=1,
            how="submitted",
        )
        if how.get("stopped"):
            kube.head.end(job_id, "STOPPED")
            return
        finish(job, spec)
        kube.head.end(job_id, "SUCCEEDED", code=0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
