"""Submit or attach, wait, cancel: against a loopback API that forgets, loses answers and kills drivers."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from raysweep import errors
from raysweep.jobs import Cluster, JobOptions, RunningJob, cancel, submit_or_attach, wait
from raysweep.jobs.client import JobsClient
from raysweep.jobs.errorline import encode_error
from raysweep.jobs.request import JobRequest
from raysweep.outcome import Holder, Lease, SweepOutcome, SweepProgress, TrainOutcome, TrialOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.view import RunView
from raysweep.spec import RunRequest, SweepSpec, TrainSpec
from raysweep.storage.opening import open_store
from tests.unit.jobs.api import Api, serving

SECRET = "a-password-of-the-trials"
KEY = "2026-11-21"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("raysweep.jobs.client.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("raysweep.jobs.attach.SETTLE_S", 0.05)
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 0.3)
    monkeypatch.setattr("raysweep.jobs.follow.FIRST_PAUSE_S", 0.01)


@pytest.fixture
def spec(tmp_path: Path) -> SweepSpec:
    return SweepSpec(
        name="Flights",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="auc",
        mode="max",
        num_samples=3,
        storage_path=str(tmp_path / "sweeps"),
    )


def folder_of(job: RunningJob) -> SweepFolder:
    return SweepFolder(open_store(job.storage_path), job.run_id)


def finish(job: RunningJob, spec: SweepSpec, status: Any = "completed", **fields: Any) -> SweepOutcome:
    outcome = SweepOutcome(
        sweep_id=job.run_id,
        name=spec.name,
        status=status,
        metric="auc",
        mode="max",
        started_at=0,
        ended_at=1,
        spec_digest=spec.digest(),
        **fields,
    )
    folder = folder_of(job)
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key=job.key, seed=0, spec=spec.to_dict()))
    folder.write_outcome_if_absent(outcome)
    return outcome


def submit(api: Api, spec: SweepSpec | TrainSpec, **options: Any) -> RunningJob:
    return asyncio.run(submit_or_attach(spec, to=api.address, key=KEY, options=JobOptions(**options)))


def waited(api: Api, job: RunningJob, **options: Any) -> Any:
    return asyncio.run(wait(job, to=api.address, **options))


# --- submit or attach


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
        with pytest.raises(errors.JobStoppedError, match=r"on_cancelled") as caught:
            submit(api, spec)
        assert caught.value.job_id == first.job_id
        assert submit(api, spec, on_cancelled="resume").number == 2


def test_a_cancelled_sweep_goes_on_when_asked(spec: SweepSpec) -> None:
    """Its outcome is put aside, so that who waits does not take it for the end of the next job."""
    with serving(Api()) as api:
        first = submit(api, spec)
        cancelled = finish(first, spec, "cancelled")
        api.end(first.job_id, "SUCCEEDED", code=0)
        assert submit(api, spec).how == "finished"
        again = submit(api, spec, on_cancelled="resume")
        assert (again.number, again.how) == (2, "submitted")
        assert folder_of(again).read_outcome() is None
        assert submit(api, spec, on_cancelled="resume") == again
        done = finish(again, spec)
        assert waited(api, again) == done != cancelled
        assert submit(api, spec, on_cancelled="resume").how == "finished"


def test_a_sweep_that_its_deadline_ended_goes_on_with_a_later_one(spec: SweepSpec) -> None:
    at = spec.replace(stop=spec.stop.replace(deadline="2026-11-21T06:00:00+00:00"))
    with serving(Api()) as api:
        first = submit(api, at)
        record = SweepRecord(digest=at.digest(), key=KEY, seed=1, spec=at.to_dict())
        folder_of(first).write_spec_if_absent(record)
        finish(first, at, "deadline")
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
        assert request.options.again == JobOptions(**options).again


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
        assert not api.calls


def test_training_runs_go_the_same_way(spec: SweepSpec) -> None:
    train = TrainSpec(name="full", trainable="m:f", storage_path=spec.storage_path)
    with serving(Api()) as api:
        job = submit(api, train)
        assert (job.kind, job) == ("train", submit(api, train))
        outcome = TrainOutcome(run_id=job.run_id, name="full", status="completed", started_at=0, ended_at=1)
        open_store(job.storage_path).put(f"{job.run_id}/train_outcome.json", outcome.to_json().encode())
        assert waited(api, job) == outcome


# --- packages and environment


def test_a_working_dir_goes_over_the_wire_once(spec: SweepSpec, tmp_path: Path, caplog: Any) -> None:
    code = tmp_path / "code"
    (code / ".git").mkdir(parents=True)
    (code / "m.py").write_text("def f(config): ...\n")
    (code / ".env").write_text("PASSWORD=x\n")
    (code / ".git/config").write_text("x")
    caplog.set_level(logging.INFO, "raysweep.jobs")
    with serving(Api()) as api:
        job = submit(api, spec, working_dir=code)
        api.end(job.job_id, "FAILED")
        again = submit(api, spec, working_dir=code)
        assert again.number == 2
        first, second = (api.jobs[each.job_id]["runtime_env"] for each in (job, again))
        assert first["working_dir"] == second["working_dir"]
        # The code and the request, once each; the second submission has the same request, too.
        assert api.count("PUT", "/api/packages/") == 2
    assert ".env (may hold secrets)" in job.left_out
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warnings if ".env (may hold secrets)" in text and ".git" not in text]


def test_what_is_left_out_is_said_in_a_few_lines(spec: SweepSpec, tmp_path: Path) -> None:
    """The handle of the job goes through triggers, events and databases: three thousand files were 129 KB."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "m.py").write_text("def f(config): ...\n")
    (code / ".gitignore").write_text("*.log\n")
    for number in range(3000):
        (code / f"{'long' * 10}-{number}.log").touch()
    (code / "zz.pem").write_text("x")
    with serving(Api()) as api:
        job = submit(api, spec, working_dir=code)
    assert len(json.dumps(job.to_dict())) < 10_000
    assert job.left_out[0] == "zz.pem (may hold secrets)"
    assert job.left_out[-1] == "… and 2952 more"
    assert len(job.left_out) == 50


def test_secrets_reach_the_job_and_nothing_else(spec: SweepSpec, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"env_vars": {"PASSWORD": SECRET, "OTHER": SecretStr("another-one")}, "lease_ttl_s": 60.0}
    with serving(Api()) as api:
        job = submit(api, spec, **options)
        sent = api.jobs[job.job_id]
        assert sent["runtime_env"]["env_vars"] == {"PASSWORD": SECRET, "OTHER": "another-one"}
        info = asyncio.run(_info(api, job))
        api.end(job.job_id, "FAILED", code=1, log=f"the user's code printed {SECRET}\n")
        kept = [
            *(repr(each) for each in (job, info, JobOptions(**options))),  # type: ignore[arg-type]
            *(repr(data) for data in api.packages.values()),
            *(path.read_text() for path in (tmp_path / "sweeps").rglob("*") if path.is_file()),
            json.dumps(sent["metadata"]),
            sent["entrypoint"],
            caplog.text,
        ]
    for secret in (SECRET, "another-one"):
        assert not [text for text in kept if secret in text]
    assert (tmp_path / "sweeps").rglob("lease.json")


async def _info(api: Api, job: RunningJob) -> Any:
    async with JobsClient(api.address) as client:
        return await client.info(job.job_id)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"env_vars": {"A": 5}}, "env_vars.A"),
        ({"env_vars": {"A=B": SECRET}}, "env_vars"),
        ({"env_vars": {"A": SECRET * 6000}}, "env_vars.A"),
        ({"runtime_env": {"env_vars": {"A": SECRET}}}, "runtime_env.env_vars"),
        ({"runtime_env": {"pip": object()}}, "runtime_env.pip"),
        ({"lease_ttl_s": 1}, "lease_ttl_s"),
        ({"on_cancelled": "perhaps"}, "on_cancelled"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_options_are_checked_and_show_no_values(options: dict[str, Any], named: str) -> None:
    with pytest.raises(errors.SpecError) as caught:
        JobOptions(**options)
    assert caught.value.field == named
    assert SECRET not in str(caught.value)


# --- wait


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


# --- outcomes that are seen late


class Late:
    """Hides an outcome for a while, as a file system does that remembers what was not there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
        self.looks = looks
        self.listed = 0
        read, again = SweepFolder.read_outcome, RunView.look_again

        def read_late(folder: SweepFolder) -> SweepOutcome | None:
            self.looks -= 1
            return read(folder) if self.looks < 0 else None

        def look_again(view: RunView) -> None:
            self.listed += 1
            again(view)

        monkeypatch.setattr(SweepFolder, "read_outcome", read_late)
        monkeypatch.setattr(RunView, "look_again", look_again)


def test_an_outcome_that_is_seen_late_is_waited_for(spec: SweepSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 20.0)
    with serving(Api()) as api:
        for status, code, log in (("SUCCEEDED", 0, ""), ("FAILED", 1, "raysweep-outcome: failed\n")):
            job = submit(api, spec.replace(name=f"s-{status}"))
            outcome = finish(job, spec.placed(), "completed" if code == 0 else "failed")
            api.end(job.job_id, status, code=code, log=log)
            late = Late(monkeypatch, 3)
            assert waited(api, job) == outcome
            assert late.listed >= 2, "asked again in the same way"


def test_a_rerun_waits_for_an_outcome_that_is_seen_late(
    spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 20.0)
    with serving(Api()) as api:
        job = submit(api, spec)
        outcome = finish(job, spec.placed())
        api.end(job.job_id, "SUCCEEDED", code=0)
        Late(monkeypatch, 3)
        again = submit(api, spec)
        assert again.how == "finished"
        assert waited(api, again) == outcome


def test_a_run_whose_folder_was_removed_is_run_again(spec: SweepSpec, tmp_path: Path) -> None:
    with serving(Api()) as api:
        first = submit(api, spec)
        finish(first, spec.placed())
        api.end(first.job_id, "SUCCEEDED", code=0)
        shutil.rmtree(tmp_path / "sweeps")
        again = submit(api, spec)
        assert (again.number, again.how) == (2, "submitted")
        # One that was noted here, and left nothing, is another matter: both causes are named.
        api.end(again.job_id, "SUCCEEDED", code=0)
        with pytest.raises(errors.StorageNotSharedError, match=r"s3://bucket.*folder was removed"):
            submit(api, spec)


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


# --- cancel


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


def test_the_same_key_at_another_storage_path_is_another_run(spec: SweepSpec, tmp_path: Path) -> None:
    other = spec.replace(storage_path=str(tmp_path / "other"))
    with serving(Api()) as api:
        first = submit(api, spec)
        with pytest.raises(errors.SpecChangedError, match=r"storage_path.*other"):
            submit(api, other)
        api.end(first.job_id, "SUCCEEDED", code=0)
        second = submit(api, other)
        assert (second.number, second.how) == (2, "submitted")
