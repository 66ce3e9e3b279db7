"""Submit or attach, against a loopback API that forgets, loses answers and kills drivers."""

from __future__ import annotations

import asyncio
import json
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from raysweep import errors
from raysweep.jobs import Cluster, JobOptions, RunningJob, cancel, submit_or_attach
from raysweep.jobs.client import JobsClient
from raysweep.jobs.request import JobRequest
from raysweep.outcome import TrainOutcome, TrialOutcome
from raysweep.runs.folder import SweepRecord
from raysweep.specs import RunRequest, SweepSpec, TrainSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.jobs.api import Api, serving
from tests.unit.jobs.attaching import KEY, finish, folder_of, quick, spec, submit, waited

__all__ = ["quick", "spec"]


def test_the_first_call_submits_and_the_next_attaches(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        first, second = submit(api, spec), submit(api, spec)
        assert (first.how, second.how) == ("submitted", "attached")
        assert first == second
        assert first.job_id == f"{first.run_id}.1"
        assert RunningJob.from_dict(json.loads(json.dumps(first.to_dict()))) == first
        sent = api.jobs[first.job_id]
    assert sent["entrypoint"] == f"python -m raysweep.jobs.driver {first.job_id}"
    assert sent["metadata"]["raysweep_sweep_id"] == first.run_id
    assert sent["metadata"]["raysweep_attempt"] == "1"
    (uri,) = sent["runtime_env"]["py_modules"]
    with zipfile.ZipFile(BytesIO(api.packages[uri.rpartition("/")[2]])) as archive:
        request = JobRequest.from_json(archive.read("raysweep_job/request.json"))
    assert (request.kind, request.key) == ("sweep", KEY)
    assert SweepSpec.from_any(request.spec) == spec.placed()


def test_fifty_calls_at_once_are_one_job(spec: SweepSpec) -> None:
    async def fifty(address: str) -> list[RunningJob]:
        async with JobsClient(address) as client:
            calls = (submit_or_attach(spec, to=client, key=KEY) for _ in range(50))
            return await asyncio.gather(*calls)

    # All have seen that there is no job before the first is taken.
    with serving(Api(submit_delay_s=0.3)) as api:
        jobs = asyncio.run(fifty(api.address))
        assert list(api.jobs) == [jobs[0].job_id]
        assert api.count("POST", "/api/jobs/") > 1
    assert all(job == jobs[0] for job in jobs)
    assert sorted(job.how for job in jobs) == ["attached"] * 49 + ["submitted"]


@pytest.mark.parametrize("trouble", ["lose", "drop", 500, 503])
def test_a_lost_answer_ends_as_attached_to_one_job(spec: SweepSpec, trouble: str | int) -> None:
    left = [2]

    def twice(method: str, path: str) -> str | int | None:
        left[0] -= method == "POST"
        return trouble if method == "POST" and left[0] >= 0 else None

    with serving(Api(trouble=twice)) as api:
        job = submit(api, spec)
        assert list(api.jobs) == [job.job_id]
        assert job.how == ("attached" if trouble == "lose" else "submitted")


@pytest.mark.parametrize(
    ("status", "number"), [("PENDING", 1), ("RUNNING", 1), ("FAILED", 2)], ids=lambda value: str(value)
)
def test_what_the_newest_job_decides(spec: SweepSpec, status: str, number: int) -> None:
    with serving(Api()) as api:
        first = submit(api, spec)
        api.end(first.job_id, status)
        assert submit(api, spec).number == number
        assert submit(api, spec).number == number


def test_a_job_that_a_person_stopped_is_only_gone_on_with_when_asked(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        first = submit(api, spec)
        api.end(first.job_id, "STOPPED")
        with pytest.raises(errors.JobStoppedError, match=r"resume_cancelled") as caught:
            submit(api, spec)
        assert caught.value.job_id == first.job_id
        assert submit(api, spec, resume_cancelled=True).number == 2


@pytest.mark.parametrize("status", ["STOPPED", "FAILED"])
def test_a_job_that_was_asked_to_end_is_only_resumed_when_asked(status: Any, spec: SweepSpec) -> None:
    """A training's driver that hears of the request before Ray ends it fails: that is the same end."""
    with serving(Api()) as api:
        first = submit(api, spec)
        first.view().ask_to_cancel("not tonight", "a person", number=first.number)
        api.end(first.job_id, status)
        with pytest.raises(errors.JobStoppedError, match="resume_cancelled"):
            submit(api, spec)
        assert submit(api, spec, resume_cancelled=True).number == 2


def test_a_cancelled_sweep_goes_on_when_asked(spec: SweepSpec) -> None:
    """Its outcome is put aside, so that who waits does not take it for the end of the next job."""
    with serving(Api()) as api:
        first = submit(api, spec)
        cancelled = finish(first, spec, "cancelled")
        api.end(first.job_id, "SUCCEEDED", code=0)
        assert submit(api, spec).how == "finished"
        again = submit(api, spec, resume_cancelled=True)
        assert (again.number, again.how) == (2, "submitted")
        assert folder_of(again).read_outcome() is None
        assert submit(api, spec, resume_cancelled=True) == again
        done = finish(again, spec)
        assert waited(api, again) == done != cancelled
        assert submit(api, spec, resume_cancelled=True).how == "finished"


def test_a_sweep_that_its_deadline_ended_goes_on_with_a_later_one(spec: SweepSpec) -> None:
    at = spec.replace(stop=spec.stop.replace(deadline="2026-11-21T06:00:00+00:00"))
    with serving(Api()) as api:
        first = submit(api, at)
        record = SweepRecord(digest=at.digest(), key=KEY, seed=1, spec=at.to_dict())
        folder_of(first).write_spec_if_absent(record)
        finish(first, at, "deadline", ended_by={"rule": "stop.deadline"})
        api.end(first.job_id, "SUCCEEDED", code=0)
        assert submit(api, at).how == "finished"
        with pytest.raises(errors.SpecChangedError):
            submit(api, at.replace(num_samples=9))
        later = at.replace(stop=at.stop.replace(deadline="2026-11-22T06:00:00+00:00"))
        again = submit(api, later)
        assert (again.number, again.how) == (2, "submitted")


@pytest.mark.parametrize(
    ("options", "samples"),
    [({"retry": "failed"}, 9), ({"retry": (1,)}, 9), ({"extend": {"top": 1, "max_t": 9}}, 9), ({}, 12)],
)
def test_a_sweep_of_which_more_is_wanted_is_the_next_job(
    options: dict[str, Any], samples: int, spec: SweepSpec
) -> None:
    asked = spec.replace(num_samples=9)
    trials = (
        TrialOutcome(trial_id="00000", number=0, state="completed", score=1.0, checkpoint_uri="s3://c/1"),
        TrialOutcome(trial_id="00001", number=1, state="failed"),
    )
    with serving(Api()) as api:
        first = submit(api, asked)
        finish(first, asked, trials=trials)
        api.end(first.job_id, "SUCCEEDED", code=0)
        assert submit(api, asked).how == "finished"
        assert submit(api, asked, retry=(0,)).how == "finished"
        again = submit(api, asked.replace(num_samples=samples), **options)
        assert (again.number, again.how) == (2, "submitted")
        assert folder_of(first).read_outcome() is None
        uri = api.jobs[again.job_id]["runtime_env"]["py_modules"][0]
        with zipfile.ZipFile(BytesIO(api.packages[uri.rpartition("/")[2]])) as archive:
            request = JobRequest.from_json(archive.read("raysweep_job/request.json"))
        assert request.options.continuing == JobOptions(**options).continuing


def test_success_without_an_outcome_blames_the_storage(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        api.end(job.job_id, "SUCCEEDED", code=0)
        for call in (lambda: submit(api, spec), lambda: waited(api, job)):
            with pytest.raises(errors.StorageNotSharedError, match="s3://bucket"):
                call()


def test_a_forgetful_head_gets_the_next_number(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        first = submit(api, spec)
        api.jobs.clear()
        with pytest.raises(errors.ClusterLostError, match="forgotten") as caught:
            waited(api, first)
        assert caught.value.retryable
        second = submit(api, spec)
        assert (second.number, second.how) == (2, "submitted")
        # A late kill of the first hits nothing.
        assert asyncio.run(cancel(first, to=api.address)) is False
        assert api.jobs[second.job_id]["status"] == "RUNNING"
        # What it left in the storage names the first, and concerns no later one.
        asked = folder_of(first).read_cancellation()
        assert asked is not None
        assert (asked.number, asked.concerns(1), asked.concerns(2)) == (1, True, False)


def test_an_outcome_is_returned_without_the_cluster(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        outcome = finish(submit(api, spec), spec.placed())
        calls = len(api.calls)
        job = submit(api, spec)
        assert (job.how, len(api.calls)) == ("finished", calls)
    # And with no cluster at all.
    assert waited(api, job) == outcome
    assert submit(api, spec) == job


def test_a_changed_spec_is_refused(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = submit(api, spec)
        placed = spec.placed()
        folder_of(job).write_spec_if_absent(
            SweepRecord(digest=placed.digest(), key=KEY, seed=0, spec=placed.to_dict())
        )
        assert submit(api, spec.replace(num_samples=9)).job_id == job.job_id
        with pytest.raises(errors.SpecChangedError, match="metric"):
            submit(api, spec.replace(metric="loss"))
        finish(job, placed)
        with pytest.raises(errors.SpecChangedError, match="max_concurrent_trials"):
            submit(api, spec.replace(max_concurrent_trials=9))


def test_a_callable_without_an_import_path_cannot_travel(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        with pytest.raises(errors.SpecError, match="import path"):
            submit(api, spec.replace(trainable=lambda config: config))
        with pytest.raises(errors.SpecError, match=r"^evaluate\.trainable: .* has no import path"):
            submit(api, spec.replace(evaluate=lambda checkpoint, config, iteration: {}))
        train = TrainSpec(
            name="full",
            trainable="m:f",
            storage_path=spec.storage_path,
            datasets={"valid": "m:valid", "train": lambda config: config},
        )
        with pytest.raises(errors.SpecError, match=r"^datasets\.train: .* has no import path"):
            submit(api, train)
        assert not api.calls


def test_training_runs_go_the_same_way(spec: SweepSpec) -> None:
    train = TrainSpec(name="full", trainable="m:f", storage_path=spec.storage_path)
    with serving(Api()) as api:
        job = submit(api, train)
        assert (job.kind, job) == ("train", submit(api, train))
        outcome = TrainOutcome(run_id=job.run_id, name="full", status="completed", started_at=0, ended_at=1)
        open_store(job.storage_path).put(f"{job.run_id}/train_outcome.json", outcome.to_json().encode())
        assert waited(api, job) == outcome


def test_the_same_key_at_another_storage_path_is_another_run(spec: SweepSpec, tmp_path: Path) -> None:
    other = spec.replace(storage_path=str(tmp_path / "other"))
    with serving(Api()) as api:
        first = submit(api, spec)
        with pytest.raises(errors.SpecChangedError, match=r"storage_path.*other"):
            submit(api, other)
        api.end(first.job_id, "SUCCEEDED", code=0)
        second = submit(api, other)
        assert (second.number, second.how) == (2, "submitted")


# --- announced before they are submitted


def test_a_job_is_announced_before_it_is_submitted(spec: SweepSpec) -> None:
    seen: list[tuple[str, list[str]]] = []
    request = RunRequest.of(spec, KEY)
    with serving(Api()) as api:
        cluster = Cluster(api.address)

        def take(job: RunningJob) -> None:
            seen.append((job.job_id, list(api.jobs)))

        first = cluster.submit(request, announce=take)
        again = cluster.submit(request, announce=take)
    assert first == again
    assert seen == [(first.job_id, []), (first.job_id, [first.job_id])]


def test_what_is_refused_when_announced_is_not_submitted(spec: SweepSpec) -> None:
    def refuse(job: RunningJob) -> None:
        raise errors.JobStoppedError(job.job_id, "it was called off")

    with serving(Api()) as api:
        with pytest.raises(errors.JobStoppedError, match="called off"):
            Cluster(api.address).submit(RunRequest.of(spec, KEY), announce=refuse)
        assert api.jobs == {}
