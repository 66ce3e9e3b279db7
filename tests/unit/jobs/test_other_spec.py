"""One key, two specs, and a driver that has not started yet: nobody gets the other's outcome."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from raysweep import errors
from raysweep.jobs import ClusterConnection, RunningJob, cancel, submit_or_attach
from raysweep.outcome import TrainOutcome
from raysweep.runs.training import RunFolder
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.step import End
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training
from tests.unit.jobs.api import Api, serving
from tests.unit.jobs.attaching import KEY, finish, quick, spec, submit, waited

__all__ = ["quick", "spec"]

OTHER = {"param_space": {"x": {"uniform": [0, 1000]}}}


def test_a_job_of_another_spec_is_not_attached_to_before_its_driver_starts(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        with pytest.raises(errors.SpecChangedError) as caught:
            submit(api, spec.replace(**OTHER))
        assert caught.value.diff == ("param_space.x differs",)
        assert f"raysweep cancel {job.run_id}" in str(caught.value)
        # More samples and the like are no other spec; fewer are.
        assert submit(api, spec.replace(num_samples=9, tags={"a": "b"})).how == "attached"
        with pytest.raises(errors.SpecChangedError, match="num_samples: 3 -> 1"):
            submit(api, spec.replace(num_samples=1))
        assert list(api.jobs) == [job.job_id]


@pytest.mark.parametrize("status", ["STOPPED", "FAILED", "SUCCEEDED"])
def test_a_job_of_another_spec_that_ended_before_it_began_is_in_no_way(spec: SweepSpec, status: str) -> None:
    with serving(Api()) as api:
        first = submit(api, spec)
        api.end(first.job_id, status)
        second = submit(api, spec.replace(**OTHER))
        assert (second.number, second.how) == (2, "submitted")


def test_a_pending_job_of_another_spec_that_was_told_to_end_is_in_no_way(spec: SweepSpec) -> None:
    """Ray may never stop a job that waits for a node; its driver, if it ever starts, ends at once."""
    with serving(Api(trouble=lambda _, path: 500 if path.endswith("/stop") else None)) as api:
        first = submit(api, spec)
        api.jobs[first.job_id]["status"] = "PENDING"
        with suppress(errors.ClusterError):
            asyncio.run(cancel(first, to=ClusterConnection(address=api.address, tries=1)))
        assert submit(api, spec.replace(**OTHER)).number == 2


def test_two_specs_at_once_are_one_job_and_one_error(spec: SweepSpec) -> None:
    """Both have seen that there is no job; the cluster refuses the second, which looks at the first."""

    async def both(address: str) -> list[RunningJob | BaseException]:
        calls = [submit_or_attach(each, to=address, key=KEY) for each in (spec, spec.replace(**OTHER))]
        return await asyncio.gather(*calls, return_exceptions=True)

    with serving(Api(submit_delay_s=0.3)) as api:
        ends = asyncio.run(both(api.address))
    assert sorted(type(end).__name__ for end in ends) == ["RunningJob", "SpecChangedError"]


def test_the_outcome_of_another_spec_is_not_handed_on(spec: SweepSpec) -> None:
    """Its head was lost before its driver had started, and another caller was given the number after."""
    with serving(Api()) as api:
        first = submit(api, spec)
        other = spec.replace(**OTHER)
        api.jobs.clear()
        second = submit(api, other)
        outcome = finish(second, other.placed())
        api.end(second.job_id, "SUCCEEDED", code=0)
        assert waited(api, second) == outcome
        with pytest.raises(errors.SpecChangedError, match=r"param_space\.x differs"):
            waited(api, first)
        assert End(job=second, how="ended").result() == outcome
        assert isinstance(End(job=first, how="ended").result(), errors.SpecChangedError)
        # The handle travels as JSON, and one of an earlier version knows no spec.
        fields = {name: value for name, value in first.to_dict().items() if name != "spec"}
        assert waited(api, RunningJob.from_dict(fields)) == outcome


def test_more_samples_than_were_asked_for_are_no_other_outcome(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        first = submit(api, spec)
        more = spec.replace(num_samples=9)
        outcome = finish(first, more.placed())
        assert waited(api, first) == outcome


def test_trainings_are_told_apart_likewise(tmp_path: Path) -> None:
    spec = TrainSpec(name="full", trainable="m:f", config={"lr": 0.1}, storage_path=str(tmp_path))
    other = spec.replace(config={"lr": 0.2})
    with serving(Api()) as api:
        job = submit(api, spec)
        with pytest.raises(errors.SpecChangedError, match=r"config\.lr differs"):
            submit(api, other)
        assert submit(api, spec.replace(failure={"max_failures": 7})).how == "attached"
        folder = RunFolder(open_store(job.storage_path), job.run_id)
        begin_training(folder, other.placed(), KEY)
        with pytest.raises(errors.SpecChangedError, match=r"config\.lr: 0\.2 -> 0\.1"):
            submit(api, spec)
        folder.write_outcome(
            TrainOutcome(run_id=job.run_id, name="full", status="completed", started_at=0, ended_at=1)
        )
        with pytest.raises(errors.SpecChangedError, match=r"config\.lr differs"):
            waited(api, job)
