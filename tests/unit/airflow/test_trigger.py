"""The trigger's own rules. The cluster is put aside here: what it does for real is in `tests/airflow`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from raysweep.errors import ClusterLostError, ConnectionUnreadableError, SpecError, WaitFailedError
from raysweep.jobs import RunningJob
from raysweep.jobs.errorline import decode_error
from raysweep.jobs.notes import ProgressLines, progress_line
from raysweep.outcome import BestTrial, Holder, SweepProgress
from raysweep.step import cancelling, waiting
from raysweep_airflow.hooks import Access, RaySweepHook
from raysweep_airflow.identity import TaskId
from raysweep_airflow.triggers import SweepTrigger

JOB = RunningJob(
    address="http://head:8265",
    kind="sweep",
    run_id="s-1",
    key="k",
    storage_path="/sweeps",
    job_id="s-1.1",
    number=1,
    how="submitted",
)
TASK = TaskId(dag_id="night", task_id="sweep", run_id="r1")


def trigger(**fields: Any) -> SweepTrigger:
    return SweepTrigger(job=JOB.to_dict(), conn_id="c", task=TASK.to_dict(), **fields)


class Cluster:
    """In place of `wait` and `cancel`: notes what was cancelled, and waits as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wait_s = 0.0
        self.error: Exception | None = None
        self.cancel_s = 0.0
        self.fails = 0
        self.cancelled: list[tuple[str, str]] = []
        # The far edge: a real cluster takes seconds for what these tests ask a dozen times.
        monkeypatch.setattr(waiting, "wait", self.wait)
        monkeypatch.setattr(waiting, "FIRST_PAUSE_S", 0.01)
        monkeypatch.setattr(cancelling, "ask_to_cancel", self.ask)
        monkeypatch.setattr(cancelling, "end_job", self.end)
        monkeypatch.setattr(RaySweepHook, "aaccess", self.access)

    async def access(self, *, was_there: bool = False) -> Access:
        from raysweep.jobs import ClusterConnection

        return Access(cluster=ClusterConnection(address=JOB.address))

    async def wait(self, job: RunningJob, **_: Any) -> None:
        await asyncio.sleep(self.wait_s)
        if self.fails:
            self.fails -= 1
            raise OSError(24, "Too many open files")
        if self.error is not None:
            raise self.error

    async def ask(self, job: RunningJob, *, reason: str, by: str) -> bool:
        await asyncio.sleep(self.cancel_s)
        self.cancelled.append((job.job_id, reason))
        return True

    async def end(self, job: RunningJob, *, to: Any, was_asked: bool, grace_s: float = 0) -> bool:
        return was_asked


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


async def events(of: SweepTrigger) -> list[dict[str, Any]]:
    return [event.payload async for event in of.run()]


def test_it_can_be_made_again_from_what_is_stored() -> None:
    first = trigger(fire_after=5.0, ends_at=9.0, limit="a limit", lease_ttl_s=60.0)
    path, fields = first.serialize()
    assert path == "raysweep_airflow.triggers.SweepTrigger"
    assert SweepTrigger(**fields).serialize() == (path, fields)


def test_one_event_at_the_end(cluster: Cluster) -> None:
    [event] = asyncio.run(events(trigger()))
    assert event["end"] == "ended"
    assert RunningJob.from_dict(event["job"]) == JOB


def test_nothing_fires_too_soon(cluster: Cluster) -> None:
    began = time.time()
    asyncio.run(events(trigger(fire_after=began + 0.5)))
    assert time.time() - began >= 0.5


@pytest.mark.parametrize(
    "error",
    [ClusterLostError("http://head:8265", "was killed", "submit again"), SpecError("mode", "is none", "fix")],
)
def test_an_error_keeps_its_class(cluster: Cluster, error: Any) -> None:
    cluster.error = error
    [event] = asyncio.run(events(trigger()))
    assert event["end"] == "error"
    found = decode_error(event["error"], JOB.job_id)
    assert (type(found), str(found), found.retryable) == (type(error), str(error), error.retryable)


def test_it_never_raises_and_what_is_unknown_can_be_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "UNREACHABLE_S", 0.1)
    cluster.error = ZeroDivisionError("surprise")
    [event] = asyncio.run(events(trigger()))
    assert "surprise" in event["error"]["message"]
    found = decode_error(event["error"], JOB.job_id)
    assert (type(found), found.retryable) == (WaitFailedError, True)


def test_what_passes_is_borne_in_the_triggerer(cluster: Cluster) -> None:
    cluster.fails = 3
    [event] = asyncio.run(events(trigger()))
    assert (event["end"], cluster.fails) == ("ended", 0)


def test_a_time_limit_of_something_else_is_not_the_tasks(cluster: Cluster, monkeypatch: Any) -> None:
    """Sockets raise TimeoutError too: it must not cancel the sweep."""
    monkeypatch.setattr(waiting, "UNREACHABLE_S", 0.1)
    cluster.error = TimeoutError("connect timed out")
    [event] = asyncio.run(events(trigger(ends_at=time.time() + 60, limit="an hour")))
    assert event["end"] == "error"
    assert cluster.cancelled == []


def test_a_storage_that_hangs_is_no_limit_of_the_task(cluster: Cluster, monkeypatch: Any) -> None:
    def hang(self: RunningJob) -> Any:
        raise TimeoutError("the mount hangs")

    monkeypatch.setattr(RunningJob, "view", hang)
    [event] = asyncio.run(events(trigger(ends_at=time.time() + 60, limit="an hour", lease_ttl_s=60.0)))
    found = decode_error(event["error"], JOB.job_id)
    assert (event["end"], found.retryable, cluster.cancelled) == ("error", True, [])


@pytest.mark.parametrize(
    "error",
    [
        ConnectionUnreadableError("c", "the connection could not be read (503)"),
        OSError(24, "Too many open files"),
        RuntimeError("Error from API server"),
    ],
)
def test_a_connection_that_cannot_be_read_for_a_while_is_borne(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    left = [3]

    async def access(self: RaySweepHook, *, was_there: bool = False) -> Access:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        assert was_there, "that it was there before is known"
        return await cluster.access()

    monkeypatch.setattr(RaySweepHook, "aaccess", access)
    [event] = asyncio.run(events(trigger()))
    assert (event["end"], left[0]) == ("ended", -1)
    monkeypatch.setattr(waiting, "UNREACHABLE_S", 0.1)
    left[0] = 10**6
    [event] = asyncio.run(events(trigger()))
    assert decode_error(event["error"], JOB.job_id).retryable
    # Neither does a kill give up at the first: the driver has been asked by then.
    monkeypatch.setattr(cancelling, "PAUSE_S", 0.01)
    monkeypatch.setattr(TaskId, "state", lambda self: "failed")
    left[0] = 2
    asyncio.run(trigger().on_kill())
    assert (left[0], [job for job, _ in cluster.cancelled]) == (-1, ["s-1.1"])


def test_its_limit_cancels_the_job(cluster: Cluster) -> None:
    cluster.wait_s = 60
    [event] = asyncio.run(events(trigger(ends_at=time.time() + 0.2, limit="execution_timeout of 1:00:00")))
    assert (event["end"], event["limit"]) == ("timeout", "execution_timeout of 1:00:00")
    assert cluster.cancelled == [("s-1.1", "execution_timeout of 1:00:00 is over")]


@pytest.mark.parametrize("states", [{}, {"r1": {}}, {"r1": {"sweep": None}}, {"r1": {"sweep": "deferred"}}])
def test_a_kill_of_a_task_that_airflow_does_not_know_any_more_cancels(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, states: dict[str, dict[str, str | None]]
) -> None:
    """A cleared task has a row without a state; of a DAG that was deleted there is none."""
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda **_: states)
    asyncio.run(trigger().on_kill())
    is_known = "sweep" in states.get("r1", {})
    assert cluster.cancelled == ([] if is_known else [("s-1.1", "its task was deleted from Airflow")])


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "upstream_failed", "removed"])
def test_a_kill_cancels_where_the_task_is_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(TaskId, "state", lambda self: state)
    asyncio.run(trigger().on_kill())
    assert cluster.cancelled == [("s-1.1", f"its task was marked {state} in Airflow")]


@pytest.mark.parametrize(
    "state", [None, "scheduled", "queued", "running", "restarting", "deferred", "up_for_retry"]
)
def test_a_kill_hits_nothing_where_it_is_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    monkeypatch.setattr(TaskId, "state", lambda self: state)
    asyncio.run(trigger().on_kill())
    assert cluster.cancelled == []


def test_a_kill_whose_task_cannot_be_asked_about_hits_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: TaskId) -> str:
        raise OSError("the API server does not answer")

    monkeypatch.setattr(TaskId, "state", fails)
    monkeypatch.setattr(cancelling, "PAUSE_S", 0.01)
    asyncio.run(trigger().on_kill())
    assert cluster.cancelled == []


def test_a_kill_goes_on_where_airflow_does_not_wait_for_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer cancels `on_kill` again after about a second."""
    cluster.cancel_s = 0.3
    monkeypatch.setattr(TaskId, "state", lambda self: "failed")

    async def main() -> None:
        task = asyncio.create_task(trigger().on_kill())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cluster.cancelled == []
        await asyncio.sleep(0.5)

    asyncio.run(main())
    assert [job for job, _ in cluster.cancelled] == ["s-1.1"]


def progress(ended: int) -> SweepProgress:
    return SweepProgress(
        sweep_id="s-1",
        name="s",
        status="running",
        holder=Holder(host="h", pid=1),
        generation=1,
        at=0,
        started_at=0,
        counts={"completed": ended, "failed": 1},
        num_trials=50,
        metric="auc",
        mode="max",
        best=BestTrial(trial_id="00007", score=0.93),
    )


def test_a_line_of_progress() -> None:
    expected = "running: 12 of 50 trials ended: 11 completed, 1 failed; best auc 0.93 (trial 00007)"
    assert progress_line(progress(11)) == expected


def test_no_more_than_one_line_a_minute() -> None:
    said: list[str] = []
    now = 0.0
    lines = ProgressLines(said.append, clock=lambda: now)
    for second in range(0, 181, 5):
        now = float(second)
        lines(progress(second))
    assert len(said) == 4
    lines(progress(180))
    now += 600
    lines(progress(180))
    assert len(said) == 4, "nothing new is not said again"
