"""One step, its end as JSON, and its cancellation: against a loopback Jobs API and a real storage."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import (
    ClusterUnreachableError,
    ConnectionUnreadableError,
    JobStoppedError,
    SpecError,
    SweepFailedError,
)
from raysweep.jobs import ClusterConnection, RunningJob
from raysweep.jobs.errorline import encode_error
from raysweep.outcome import SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.training import RunFolder
from raysweep.specs import RunRequest, SweepSpec, TrainSpec
from raysweep.step import (
    Canceller,
    End,
    Intent,
    Place,
    Step,
    cancel_anyway,
    cancelling,
    connected,
    wait_for_end,
)
from raysweep.storage.objects.opening import open_store
from tests.unit.jobs.api import Api, serving
from tests.unit.verify.stored import store_sweep

LOG = logging.getLogger("tests")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("raysweep.jobs.client.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("raysweep.jobs.attach.SETTLE_S", 0.05)
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 0.3)
    monkeypatch.setattr("raysweep.step.waiting.REFUSED_S", 0.1)
    monkeypatch.setattr("raysweep.step.waiting.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("raysweep.jobs.follow.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(cancelling, "PAUSE_S", 0.01)


@pytest.fixture
def spec(tmp_path: Path) -> SweepSpec:
    return SweepSpec(
        name="flights",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="auc",
        mode="max",
        storage_path=str(tmp_path / "sweeps"),
    )


def step_of(api: Api, spec: SweepSpec, **fields: Any) -> Step:
    return Step(request=RunRequest.of(spec, "k"), place=Place.of(api.address), **fields)


def finish(job: RunningJob, status: Any = "completed") -> SweepOutcome:
    outcome = SweepOutcome(
        sweep_id=job.run_id,
        name="flights",
        status=status,
        metric="auc",
        mode="max",
        started_at=0,
        ended_at=1,
        best=TrialOutcome(trial_id="t", number=0, state="completed", score=1.0),
        counts={"completed": 3},
    )
    SweepFolder(open_store(job.storage_path), job.run_id).write_outcome_if_absent(outcome)
    return outcome


def cancellation_of(job: RunningJob) -> Any:
    return SweepFolder(open_store(job.storage_path), job.run_id).read_cancellation()


@pytest.mark.parametrize(
    ("address", "is_job", "own"),
    [
        (None, False, None),
        ("local", False, "local"),
        ("host:1", False, "host:1"),
        ("http://h:8265", True, None),
    ],
)
def test_an_address_says_where_a_step_runs(address: Any, is_job: bool, own: str | None) -> None:
    place = Place.of(address)
    assert (place.is_job, place.address) == (is_job, own)


def test_a_step_that_is_run_again_attaches_and_hands_on(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        step = step_of(api, spec)
        job, again = step.submit(), step.submit()
        assert (job.how, again.how, job.job_id) == ("submitted", "attached", f"{step.request.run.id}.1")
        outcome = finish(job)
        assert step.run() == outcome
        assert step.finish(outcome) == outcome
        assert list(api.jobs) == [job.job_id]


def test_what_counts_is_up_to_the_step(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        outcome = finish(step_of(api, spec).submit(), "deadline")
        assert step_of(api, spec).finish(outcome) == outcome
        with pytest.raises(SweepFailedError, match="accept_partial is off"):
            step_of(api, spec, accept_partial=False).finish(outcome)


def test_a_training_without_a_key_is_the_same_run_each_time(tmp_path: Path) -> None:
    """And what has ended is handed on without Ray."""
    spec = TrainSpec(trainable="no.such.module:f", storage_path=str(tmp_path))
    run = RunRequest.of(spec, None).run
    outcome = TrainOutcome(run_id=run.id, name="train", status="completed", started_at=0, ended_at=1)
    RunFolder(open_store(str(tmp_path)), run.id).write_outcome(outcome)
    assert rs.run_training(spec) == outcome
    assert rs.run_training(spec, address="http://127.0.0.1:9") == outcome


# --- waiting


def waited(api: Api, job: RunningJob, **options: Any) -> End:
    to = connected(ClusterConnection(address=api.address))
    end = asyncio.run(wait_for_end(job, to=to, by="a test", **options))
    assert End.from_dict(json.loads(json.dumps(end.to_dict()))) == end
    return end


def test_an_end_is_read_from_the_storage(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        outcome = finish(job)
        assert waited(api, job).result() == outcome


def test_an_error_keeps_its_class_on_its_way(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        error = SpecError("resources", "no node has 8 GPUs", "ask for fewer")
        api.end(job.job_id, "FAILED", code=2, log=encode_error(error))
        found = waited(api, job).result()
    assert (type(found), str(found)) == (SpecError, str(error))


def test_a_limit_cancels_the_job_and_says_how_to_go_on(
    spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raysweep.step.waiting.cancel_anyway", partial(cancel_anyway, grace_s=0.1))
    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        end = waited(api, job, ends_at=time.time() + 0.2, limit="an hour")
        assert api.jobs[job.job_id]["status"] == "STOPPED"
    found = end.result(again="clear the task")
    assert isinstance(found, JobStoppedError)
    assert "an hour is over; clear the task" in str(found)
    assert cancellation_of(job).reason == "an hour is over"


def test_who_cannot_connect_says_so_in_the_end(spec: SweepSpec) -> None:
    async def connect() -> ClusterConnection:
        raise SpecError("conn_id", "there is no connection 'c'", "make one")

    with serving(Api()) as api:
        job = step_of(api, spec).submit()
    end = asyncio.run(wait_for_end(job, to=connect, by="a test"))
    assert isinstance(end.result(), SpecError)


# --- cancelling


def over(api: Api, job: RunningJob, why: Any) -> None:
    to = connected(ClusterConnection(address=api.address))
    asyncio.run(Canceller(to=to, by="a test", log=LOG, grace_s=0.1).cancel_if_over(job, why))


def test_only_what_nobody_wants_is_cancelled(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        over(api, job, lambda: "")
        assert (api.jobs[job.job_id]["status"], cancellation_of(job)) == ("RUNNING", None)
        over(api, job, lambda: "its task was marked failed")
        assert api.jobs[job.job_id]["status"] == "STOPPED"
    assert (cancellation_of(job).reason, cancellation_of(job).by) == ("its task was marked failed", "a test")


def test_a_job_that_its_step_does_not_run_any_more_is_cancelled(spec: SweepSpec, caplog: Any) -> None:
    """A step remembers its job with other things beside it; the same run's job stays as it is."""
    with serving(Api()) as api:
        to = connected(ClusterConnection(address=api.address))

        def now_runs(remembered: Any, now: RunningJob) -> list[str]:
            canceller = Canceller(to=to, by="a test", log=LOG, grace_s=0.1)
            asyncio.run(canceller.cancel_superseded(remembered, now))
            return [str(job["status"]) for job in api.jobs.values()]

        first = step_of(api, spec).submit()
        later = replace(first, run_id=f"{first.run_id}-other", job_id=f"{first.run_id}-other.1")
        remembered = first.to_dict() | {"uri": "here", "job_url": "there"}
        for nothing in (None, {}, {"kind": "train", "run_id": "local", "uri": "here"}):
            assert now_runs(nothing, later) == ["RUNNING"]
        assert now_runs(remembered, replace(first, number=2)) == ["RUNNING"]
        assert now_runs(remembered, later) == ["STOPPED"]
        assert now_runs({"job_id": "x", "run_id": "y"}, later) == ["STOPPED"], "it never raises"
    assert (
        cancellation_of(first).reason == f"its step was given something else since, and runs {later.run_id}"
    )


def test_who_cannot_be_asked_at_once_is_asked_again(spec: SweepSpec) -> None:
    asked: list[int] = []

    def why() -> str:
        asked.append(1)
        if len(asked) < 3:
            raise OSError("the server restarts")
        return "over"

    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        over(api, job, why)
        assert (len(asked), api.jobs[job.job_id]["status"]) == (3, "STOPPED")


def test_a_job_of_which_nothing_can_be_found_out_goes_on(spec: SweepSpec, caplog: Any) -> None:
    def why() -> str:
        raise OSError("the server is gone")

    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        over(api, job, why)
        assert api.jobs[job.job_id]["status"] == "RUNNING"
    assert "`raysweep cancel` does it" in caplog.text


def test_the_storage_is_asked_before_anybody_asks_how_to_reach_the_cluster(spec: SweepSpec) -> None:
    """Also of a training: its driver looks there too."""
    tried: list[Any] = []

    async def connect() -> ClusterConnection:
        tried.append(cancellation_of(job))
        raise OSError(24, "Too many open files")

    train = TrainSpec(trainable="m:f", storage_path=spec.storage_path)
    with serving(Api()) as api:
        for request in (RunRequest.of(spec, "k"), RunRequest.of(train, "k")):
            tried.clear()
            job = Step(request=request, place=Place.of(api.address)).submit()
            assert asyncio.run(cancel_anyway(job, to=connect, reason="enough", by="me"))
            assert [asked.number for asked in tried] == [1] * cancelling.TRIES


def test_a_cluster_that_hangs_holds_up_nobody(spec: SweepSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "ANSWER_S", 0.1)
    hung = threading.Event()

    def hang(method: str, path: str) -> None:
        hung.wait(10)

    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        api.trouble, to = hang, connected(ClusterConnection(address=api.address))
        began = time.monotonic()
        assert asyncio.run(cancel_anyway(job, to=to, reason="enough", by="me", grace_s=0.1))
        assert time.monotonic() - began < 5
        hung.set()
    assert cancellation_of(job).number == 1


def test_a_cluster_that_comes_back_ends_the_job_itself(spec: SweepSpec) -> None:
    tried: list[int] = []

    async def connect() -> ClusterConnection:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionUnreadableError("c", "the connection could not be read (503)")
        return ClusterConnection(address=api.address)

    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        assert asyncio.run(cancel_anyway(job, to=connect, reason="enough", by="me", grace_s=0.1))
        assert api.jobs[job.job_id]["status"] == "STOPPED"


def test_a_limit_is_kept_where_nobody_can_be_reached(spec: SweepSpec) -> None:
    async def connect() -> ClusterConnection:
        raise ConnectionUnreadableError("c", "the connection could not be read (503)")

    with serving(Api()) as api:
        job = step_of(api, spec).submit()
    end = asyncio.run(wait_for_end(job, to=connect, by="a test", ends_at=time.time() + 0.2, limit="an hour"))
    assert (end.how, cancellation_of(job).reason) == ("timeout", "an hour is over")


def test_an_end_that_is_seen_late_elsewhere_is_waited_for(
    spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited saw it; who continues, on another machine, may see it later."""
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 20.0)
    with serving(Api()) as api:
        job = step_of(api, spec).submit()
        end = End(job=job, how="ended")
        later = threading.Timer(1.0, finish, [job])
        later.start()
        assert isinstance(end.result(), SweepOutcome)
        later.join()


# --- called off while it is submitted


def called_off(api: Api, intent: Intent) -> None:
    to = connected(ClusterConnection(address=api.address))
    canceller = Canceller(to=to, by="a test", log=LOG)
    over = canceller.call_off_if_over(intent, lambda: "its task was marked failed")
    asyncio.run(over)


def test_what_is_called_off_before_its_submission_is_not_submitted(spec: SweepSpec) -> None:
    intent = Intent()

    def call_off(method: str, path: str) -> None:
        # While packages are on their way.
        if method == "PUT" and not intent.why_off:
            called_off(api, intent)

    with serving(Api(trouble=call_off)) as api:
        with pytest.raises(JobStoppedError, match="its task was marked failed before it was submitted"):
            step_of(api, spec).submit(intent.announce)
        assert api.jobs == {}


def test_what_is_called_off_while_it_is_submitted_is_known_to_its_driver(spec: SweepSpec) -> None:
    intent = Intent()

    def call_off(method: str, path: str) -> None:
        if (method, path) == ("POST", "/api/jobs/"):
            # The cluster does not know the job yet: it cannot be stopped there.
            called_off(api, intent)

    with serving(Api(trouble=call_off)) as api:
        job = step_of(api, spec).submit(intent.announce)
        assert api.jobs[job.job_id]["status"] == "RUNNING"
    asked = cancellation_of(job)
    assert (asked.reason, asked.names(job.number), asked.names(job.number + 1)) == (
        "its task was marked failed",
        True,
        False,
    )


def test_after_one_that_was_called_off_and_never_arrived_the_next_has_another_number(
    spec: SweepSpec,
) -> None:
    """It would end by the request that was meant for the other."""
    intent = Intent()

    def trouble(method: str, path: str) -> str | None:
        if (method, path) == ("POST", "/api/jobs/"):
            called_off(api, intent)
            return "drop"
        return None

    with serving(Api(trouble=trouble)) as api:
        with pytest.raises(ClusterUnreachableError):
            step_of(api, spec).submit(intent.announce)
        api.trouble = lambda method, path: None
        job = step_of(api, spec).submit(Intent().announce)
        assert (list(api.jobs), job.number) == ([job.job_id], 2)
        assert step_of(api, spec).submit() == job
    assert not cancellation_of(job).concerns(job.number)


def test_what_is_still_wanted_is_not_called_off(spec: SweepSpec) -> None:
    intent = Intent()
    with serving(Api()) as api:
        to = connected(ClusterConnection(address=api.address))
        asyncio.run(Canceller(to=to, by="a test", log=LOG).call_off_if_over(intent, lambda: ""))
        job = step_of(api, spec).submit(intent.announce)
        assert (intent.why_off, cancellation_of(job)) == ("", None)


def test_a_sweep_is_cancelled_although_its_cluster_is_out_of_reach(spec: SweepSpec) -> None:
    with serving(Api()) as api:
        job = step_of(api, spec).submit()
    to = connected(ClusterConnection(address=api.address, tries=1, connect_timeout_s=0.2))
    assert asyncio.run(cancel_anyway(job, to=to, reason="enough", by="me"))
    assert (cancellation_of(job).reason, cancellation_of(job).by) == ("enough", "me")


# -- anew


def test_what_this_run_has_begun_itself_is_not_put_aside(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    assert outcome is not None
    step = Step(request=RunRequest.of(stored.asked.spec, "k"))
    assert step.put_aside(before=outcome.started_at - 1) == ""
    assert stored.folder.read_outcome() == outcome
    assert step.put_aside(before=outcome.started_at + 1).endswith("/001")
    assert stored.folder.read_spec() is None
    assert step.put_aside() == "", "there is nothing"
