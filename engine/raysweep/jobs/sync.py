"""The jobs room for people and scripts: the same calls, without async.

    from raysweep.jobs import Cluster
    cluster = Cluster("http://head:8265")
    job = cluster.submit_or_attach(spec, key="2026-11-21")
    outcome = cluster.wait(job)

Works inside a running event loop too, as in notebooks. Each call opens its own connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from raysweep.errors import SweepInterrupted
from raysweep.jobs.attach import Announce, OnUpload, RunningJob, submit
from raysweep.jobs.client import TAIL_PAUSE_S, JobsClient
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.follow import CANCEL_GRACE_S, OnProgress, cancel, wait
from raysweep.jobs.options import JobOptions
from raysweep.jobs.patience import UNREACHABLE_S
from raysweep.jobs.wire import ClusterVersion, JobInfo
from raysweep.runs.reading.view import Outcome
from raysweep.specs import AnyRequest, RunRequest, SweepSpec, TrainSpec
from raysweep.threads import result_of, start_thread

T = TypeVar("T")


class Cluster:
    """One Ray cluster, by its address or a `ClusterConnection`. Raises what the async calls raise."""

    def __init__(self, connection: ClusterConnection | str) -> None:
        self.connection = ClusterConnection.of(connection)

    def __repr__(self) -> str:
        return f"Cluster({self.connection.address!r})"

    def version(self) -> ClusterVersion:
        """The versions of Ray and of the Jobs API."""
        return self._call(lambda client: client.version())

    def jobs(self) -> tuple[JobInfo, ...]:
        """All jobs that the cluster's head remembers."""
        return self._call(lambda client: client.jobs())

    def info(self, job_id: str) -> JobInfo:
        """One job."""
        return self._call(lambda client: client.info(job_id))

    def stop(self, job_id: str) -> bool:
        """Ask a job to end; whether it was running."""
        return self._call(lambda client: client.stop(job_id))

    def nodes(self) -> list[dict[str, Any]]:
        """The cluster's nodes, as its state API tells them."""
        return self._call(lambda client: client.nodes())

    def delete(self, job_id: str) -> bool:
        """Make the cluster forget a job that has ended."""
        return self._call(lambda client: client.delete(job_id))

    def logs(self, job_id: str) -> str:
        """All that the job's driver has written so far."""
        return self._call(lambda client: client.logs(job_id))

    def tail(self, job_id: str, *, pause_s: float = TAIL_PAUSE_S) -> Iterator[str]:
        """The output of the driver, piece by piece, until the job has ended. Not where an event loop runs."""
        with asyncio.Runner() as runner:
            client = JobsClient(self.connection)
            pieces = client.tail(job_id, pause_s=pause_s)
            try:
                while True:
                    try:
                        yield runner.run(_next(pieces))
                    except StopAsyncIteration:
                        return
            finally:
                runner.run(_close(pieces.aclose(), client.aclose()))

    def submit_or_attach(
        self, spec: SweepSpec | TrainSpec, *, key: str | None = None, options: JobOptions | None = None
    ) -> RunningJob:
        """See that a sweep or training run is on its way; the job that runs it.

        Raises SweepInterrupted for Ctrl-C: the job may have been submitted.
        """
        return self.submit(RunRequest.of(spec, key), options=options)

    def submit(
        self,
        request: AnyRequest,
        *,
        options: JobOptions | None = None,
        announce: Announce | None = None,
        on_upload: OnUpload | None = None,
    ) -> RunningJob:
        """As `submit_or_attach`, for who has a request already; `announce` gets the handle before."""
        to = self.connection
        try:
            return run_sync(
                lambda: submit(request, to=to, options=options, announce=announce, on_upload=on_upload)
            )
        except KeyboardInterrupt:
            note = "it may have been submitted; attach with the same key to see"
            raise SweepInterrupted(request.run.name, note) from None

    def wait(
        self,
        job: RunningJob,
        *,
        on_progress: OnProgress | None = None,
        lease_ttl_s: float | None = None,
        unreachable_s: float = UNREACHABLE_S,
    ) -> Outcome:
        """The outcome of a job, as soon as there is one.

        Raises SweepInterrupted for Ctrl-C: the job continues.
        """
        try:
            return run_sync(
                lambda: wait(
                    job,
                    to=self.connection,
                    on_progress=on_progress,
                    lease_ttl_s=lease_ttl_s,
                    unreachable_s=unreachable_s,
                )
            )
        except KeyboardInterrupt:
            note = f"it keeps running as job {job.job_id!r}; attach with the same key, or cancel it"
            raise SweepInterrupted(job.run_id, note) from None

    def cancel(
        self, job: RunningJob, *, reason: str = "", by: str = "", grace_s: float = CANCEL_GRACE_S
    ) -> bool:
        """Cancel a job; whether it was running."""
        return run_sync(lambda: cancel(job, to=self.connection, reason=reason, by=by, grace_s=grace_s))

    def _call(self, ask: Callable[[JobsClient], Awaitable[T]]) -> T:
        async def call() -> T:
            async with JobsClient(self.connection) as client:
                return await ask(client)

        return run_sync(call)


def run_sync(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end: here, or, where an event loop runs already, on a thread of its own."""
    if not _has_loop():
        return asyncio.run(make())
    started: Future[Any] = Future()

    async def main() -> T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await make()

    context = copy_context()  # a listener may need the context of the caller
    running = start_thread(lambda: context.run(asyncio.run, main()), "raysweep-jobs")
    try:
        return result_of(running)
    except KeyboardInterrupt:
        wait_for((running, started), return_when=FIRST_COMPLETED)
        if not running.done():
            loop, task = started.result()
            with suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(task.cancel)
            wait_for([running])
        raise


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _next(pieces: Any) -> str:
    piece: str = await anext(pieces)
    return piece


async def _close(*closing: Awaitable[None]) -> None:
    for each in closing:
        await each
