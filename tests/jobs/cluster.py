"""A head as seen through its Jobs API, for tests: requests submitted by hand, and what is left of them."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from raysweep.jobs import ClusterConnection, JobInfo, JobRequest, JobsClient, Submission
from raysweep.jobs.request import ENTRYPOINT, FILE, FOLDER
from tests.jobs.head import Head

T = TypeVar("T")
OURS = ("raysweep.jobs.driver", "raysweep.worker.process.fork_server", "ray::TrialWorker")


class Cluster:
    """Synchronous: each call is a client of its own."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.connection = ClusterConnection(address=head.address, token=head.token, trust_env=False)

    def ask(self, call: Callable[[JobsClient], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with JobsClient(self.connection) as client:
                return await call(client)

        return asyncio.run(ask())

    def submit(self, job_id: str, request: JobRequest, *, own_id: bool = False, **options: Any) -> str:
        """Submit a request as the client would, without it; `own_id`: its driver is told its id."""
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as package:
            package.writestr(zipfile.ZipInfo(f"{FOLDER}/{FILE}"), request.to_json())
        uri = f"gcs://_ray_pkg_{blake2b(data.getvalue(), digest_size=8).hexdigest()}.zip"
        entrypoint = f"{ENTRYPOINT} {job_id}" if own_id else ENTRYPOINT
        submission = Submission(
            job_id=job_id, entrypoint=entrypoint, runtime_env={"py_modules": [uri]}, **options
        )

        async def submit(client: JobsClient) -> str:
            await client.upload(uri, data.getvalue())
            return await client.submit(submission)

        return self.ask(submit)

    def info(self, job_id: str) -> JobInfo:
        return self.ask(lambda client: client.info(job_id))

    def logs(self, job_id: str) -> str:
        return self.ask(lambda client: client.logs(job_id))

    def wait(self, job_id: str, timeout_s: float = 300) -> JobInfo:
        """Wait for the end of a job."""
        deadline = time.monotonic() + timeout_s
        while not (info := self.info(job_id)).is_ended:
            assert time.monotonic() < deadline, (info, self.logs(job_id))
            time.sleep(0.2)
        return info

    def ray(self, *arguments: str) -> str:
        """Ray's own command line."""
        command = [str(Path(sys.executable).with_name("ray")), *arguments, "--address", self.head.address]
        return subprocess.run(
            command, env=self.head.environment, check=True, capture_output=True, text=True, timeout=240
        ).stdout

    def get(self, path: str) -> Any:
        """JSON from the dashboard."""
        request = urllib.request.Request(
            f"{self.head.address}{path}", headers={"Authorization": f"Bearer {self.head.token}"}
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)

    def stop_what_runs(self, timeout_s: float = 120) -> None:
        """Stop all jobs that a test left behind: the next one gets the CPUs."""
        deadline = time.monotonic() + timeout_s
        while running := [each.job_id for each in self.ask(_jobs) if not each.is_ended]:
            assert time.monotonic() < deadline, f"{running} do not stop"
            for job_id in running:
                self.ask(partial(_stop, job_id))
            time.sleep(0.5)

    def drivers(self) -> list[int]:
        """The processes that run a job's driver (and the shells that wait for one are not among them)."""
        return [pid for pid, line in self._lines() if "-m\0raysweep.jobs.driver" in line]

    def leftovers(self) -> list[str]:
        """What of sweeps is on the cluster: processes, actors, placement groups, CPUs."""
        found = [line for _, line in self._lines() if any(name in line for name in OURS)]
        found += [
            f"actor {each['class_name']}" for each in self._states("actors", "ALIVE", "PENDING_CREATION")
        ]
        groups = self._states("placement_groups", "CREATED", "PENDING", "RESCHEDULING")
        found += [f"group {each['placement_group_id']}" for each in groups]
        return found

    def wait_until_clean(self, timeout_s: float = 120) -> float:
        """How long it took until nothing of any sweep was left."""
        began = time.monotonic()
        while left := self.leftovers():
            assert time.monotonic() - began < timeout_s, left
            time.sleep(0.2)
        return time.monotonic() - began

    def _lines(self) -> list[tuple[int, str]]:
        found = []
        for pid in self.head.processes():
            with suppress(OSError):
                found.append((pid, Path(f"/proc/{pid}/cmdline").read_text()))
        return found

    def _states(self, kind: str, *states: str) -> list[dict[str, Any]]:
        answer = self.get(f"/api/v0/{kind}?limit=1000")
        rows = answer["data"]["result"]["result"]
        return [row for row in rows if row["state"] in states and row.get("class_name") != "JobSupervisor"]


async def _jobs(client: JobsClient) -> list[JobInfo]:
    return list(await client.jobs())


async def _stop(job_id: str, client: JobsClient) -> None:
    await client.stop(job_id)
