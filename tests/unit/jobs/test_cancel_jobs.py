"""Cancel a job: the request is stored first, and names it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raysweep import errors
from raysweep.jobs import cancel
from raysweep.specs import SweepSpec
from tests.unit.jobs.api import Api, serving
from tests.unit.jobs.attaching import finish, folder_of, quick, spec, submit, waited

__all__ = ["quick", "spec"]


def test_cancelling_leaves_a_reason_and_stops_the_job(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        assert asyncio.run(cancel(job, to=api.address, reason="too dear", by="me", grace_s=0.1)) is True
        assert api.jobs[job.job_id]["status"] == "STOPPED"
        asked = folder_of(job).read_cancellation()
        assert asked is not None
        assert (asked.reason, asked.by) == ("too dear", "me")
        assert asyncio.run(cancel(job, to=api.address)) is False


def test_a_controller_that_cancels_by_itself_is_not_stopped(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)

        async def cancel_it() -> bool:
            cancelling = asyncio.create_task(cancel(job, to=api.address))
            while not api.count("GET", job.job_id):  # noqa: ASYNC110  it has been seen to run
                await asyncio.sleep(0.01)
            assert folder_of(job).read_cancellation() is not None
            finish(job, spec.placed(), "cancelled")
            api.end(job.job_id, "SUCCEEDED", code=0)
            return await cancelling

        assert asyncio.run(cancel_it()) is True
        assert api.jobs[job.job_id]["status"] == "SUCCEEDED"
        assert api.count("POST", "/stop") == 0
        assert waited(api, job).status == "cancelled"


def test_the_request_is_stored_although_the_cluster_is_out_of_reach(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        api.trouble = lambda method, path: 403
        with pytest.raises(errors.ClusterAuthError):
            asyncio.run(cancel(job, to=api.address, reason="too dear", by="me"))
    asked = folder_of(job).read_cancellation()
    assert asked is not None
    assert (asked.reason, asked.by, asked.number) == ("too dear", "me", 1)


def test_a_late_request_does_not_take_back_that_for_a_later_job(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
    view = job.view()
    view.ask_to_cancel("the second", "me", number=2)
    view.ask_to_cancel("the first, late", "me", number=1)
    asked = folder_of(job).read_cancellation()
    assert asked is not None
    assert (asked.reason, asked.number) == ("the second", 2)


def test_cancelling_works_without_the_storage(spec: SweepSpec, tmp_path: Path) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        (tmp_path / "sweeps").rename(tmp_path / "away")
        (tmp_path / "sweeps").write_text("no folder")
        assert asyncio.run(cancel(job, to=api.address)) is True
        assert api.jobs[job.job_id]["status"] == "STOPPED"
