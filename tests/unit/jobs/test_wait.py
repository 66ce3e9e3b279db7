"""Wait for a job, against a loopback API that is away, refuses and kills drivers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from raysweep import errors
from raysweep.jobs import RunningJob, wait
from raysweep.jobs.client import JobsClient
from raysweep.jobs.errorline import encode_error
from raysweep.outcome import Holder, Lease, SweepProgress
from raysweep.runs.reading.view import RunView
from raysweep.specs import SweepSpec
from tests.unit.jobs.api import Api, serving
from tests.unit.jobs.attaching import finish, folder_of, quick, spec, submit, waited

__all__ = ["quick", "spec"]


def test_waiting_hands_on_heartbeats_and_renews_the_lease(spec: SweepSpec) -> None:
    seen: list[SweepProgress] = []

    def take(progress: SweepProgress) -> None:
        seen.append(progress)
        if len(seen) == 1:
            folder.write_progress(progress.model_copy(update={"at": 2.0}))
        else:
            finish(job, spec.placed())

    with serving(Api()) as api:
        job = submit(api, spec)
        folder = folder_of(job)
        folder.write_progress(
            SweepProgress(
                sweep_id=job.run_id,
                name="Flights",
                status="running",
                holder=Holder(host="node-7", pid=3),
                generation=1,
                at=1.0,
                started_at=0.0,
                metric="auc",
                mode="max",
            )
        )
        outcome = waited(api, job, on_progress=take, lease_ttl_s=20.0)
    assert outcome.status == "completed"
    assert [progress.at for progress in seen] == [1.0, 2.0]
    lease = Lease.from_json(folder.store.get(f"{job.run_id}/lease.json") or b"")
    assert lease.ttl_s == 20
    assert abs(lease.at - time.time()) < 60


Ending = Callable[[Api, str], None]


@pytest.mark.parametrize(
    ("ending", "expected", "text"),
    [
        (
            lambda api, job: api.end(
                job, "FAILED", code=2, log=encode_error(errors.SpecError("metric", "is odd"))
            ),
            errors.SpecError,
            "metric: is odd",
        ),
        (
            lambda api, job: api.end(
                job, "FAILED", code=1, log="/usr/bin/python: No module named raysweep\n"
            ),
            errors.JobFailedError,
            "No module named raysweep",
        ),
        (
            lambda api, job: api.end(
                job, "FAILED", code=3, log=encode_error(errors.SweepInterrupted("s", "lease"))
            ),
            errors.ClusterLostError,
            "lease",
        ),
        (lambda api, job: api.end(job, "FAILED", code=-9), errors.ClusterLostError, "killed"),
        (lambda api, job: api.end(job, "FAILED", code=137), errors.ClusterLostError, "killed"),
        (lambda api, job: api.end(job, "FAILED"), errors.ClusterLostError, "is gone"),
        (
            lambda api, job: api.end(job, "FAILED", kind="RUNTIME_ENV_SETUP_FAILURE"),
            errors.JobFailedError,
            "could not start",
        ),
        (lambda api, job: api.end(job, "STOPPED"), errors.JobStoppedError, "was stopped"),
    ],
)
def test_how_a_driver_ended_is_what_waiting_raises(
    spec: SweepSpec, ending: Ending, expected: type[errors.RaysweepError], text: str
) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        ending(api, job.job_id)
        with pytest.raises(expected, match=text) as caught:
            waited(api, job)
    assert type(caught.value) is expected


def test_a_dashboard_that_is_away_for_a_while_is_borne(spec: SweepSpec) -> None:
    away = [True]
    with serving(Api(trouble=lambda method, path: "drop" if away[0] and method == "GET" else None)) as api:
        away[0] = False
        job = submit(api, spec)
        away[0] = True

        async def come_back() -> Any:
            waiting = asyncio.create_task(wait(job, to=api.address))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            away[0] = False
            finish(job, spec.placed())
            return await waiting

        assert asyncio.run(come_back()).status == "completed"
        away[0] = True
        (folder_of(job).store.local_path(f"{job.run_id}/outcome.json") or Path()).unlink()
        with pytest.raises(errors.ClusterUnreachableError):
            waited(api, job, unreachable_s=0.1)
        # What is in the storage is found without it.
        finish(job, spec.placed())
        assert waited(api, job, unreachable_s=0.0 + 60).status == "completed"


def test_a_token_that_goes_on_being_refused_is_not_borne_for_long(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        api.token = "changed-since"
        with pytest.raises(errors.TokenMissingError):
            waited(api, job, refused_s=0.1)


@pytest.mark.parametrize("status", [401, 403, 404, 418])
def test_a_gateway_that_refuses_for_a_moment_is_borne(spec: SweepSpec, status: int) -> None:
    refused = [3]

    def trouble(method: str, path: str) -> int | None:
        refused[0] -= "/api/jobs/flights-" in path
        return status if "/api/jobs/flights-" in path and refused[0] >= 0 else None

    with serving(Api()) as api:
        job = submit(api, spec)
        outcome = finish(job, spec.placed())
        path = folder_of(job).store.local_path(f"{job.run_id}/outcome.json")
        assert path is not None
        path.rename(path.with_suffix(".late"))
        api.trouble = trouble

        async def come_back() -> Any:
            waiting = asyncio.create_task(wait(job, to=api.address))
            while refused[0] > 0 and not waiting.done():  # noqa: ASYNC110  the API tells
                await asyncio.sleep(0.01)
            path.with_suffix(".late").rename(path)
            return await waiting

        assert asyncio.run(come_back()) == outcome
    assert refused[0] <= 0


def test_a_404_that_names_no_job_is_no_word_of_the_cluster(spec: SweepSpec) -> None:
    """The page of a gateway may say `does not exist` too."""
    with serving(Api()) as api:
        job = submit(api, spec)
        answer = api.answer
        api.answer = lambda method, path, body: (  # type: ignore[method-assign]
            (404, b"<h1>404</h1> This page does not exist")
            if job.job_id in path
            else answer(method, path, body)
        )
        with pytest.raises(errors.ClusterRequestError) as caught:
            waited(api, job, refused_s=0.05)
    assert type(caught.value) is errors.ClusterRequestError


def test_what_fails_on_this_side_is_borne_and_then_said_as_retryable(
    spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a process has no file descriptors left."""
    fails = [3]

    async def info(self: JobsClient, job_id: str) -> Any:
        fails[0] -= 1
        if fails[0] >= 0:
            raise OSError(24, "Too many open files")
        return await look(self, job_id)

    with serving(Api()) as api:
        job = submit(api, spec)
        look = JobsClient.info
        monkeypatch.setattr(JobsClient, "info", info)
        api.end(job.job_id, "FAILED", code=2, log=encode_error(errors.SpecError("metric", "is odd")))
        with pytest.raises(errors.SpecError):
            waited(api, job)
        assert fails[0] < 0
        fails[0] = 10**6
        with pytest.raises(errors.WaitFailedError, match="Too many open files") as caught:
            waited(api, job, unreachable_s=0.1)
    assert caught.value.retryable


# --- storage that hangs


def test_storage_that_hangs_holds_up_nothing_else_on_the_event_loop(
    spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's own threads are few, and everything on it shares them."""
    hung = threading.Event()

    async def many(job: RunningJob) -> str:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        waits = [asyncio.create_task(wait(job, to=api.address, lease_ttl_s=20.0)) for _ in range(4)]
        await asyncio.sleep(0.5)
        try:
            return await asyncio.wait_for(asyncio.to_thread(lambda: "answered"), 5)
        finally:
            hung.set()
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    with serving(Api()) as api:
        job = submit(api, spec)
        for name in ("outcome", "renew_lease"):
            monkeypatch.setattr(RunView, name, lambda *_: hung.wait(60))
        assert asyncio.run(many(job)) == "answered"


def test_storage_that_hangs_for_good_is_an_outage(spec: SweepSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()
    with serving(Api()) as api:
        job = submit(api, spec)
        monkeypatch.setattr("raysweep.jobs.attach.READ_S", 0.1)
        monkeypatch.setattr(RunView, "outcome", lambda *_: hung.wait(60))
        try:
            with pytest.raises(errors.StorageUnavailableError, match="has not answered"):
                waited(api, job, unreachable_s=0.3)
        finally:
            hung.set()
