"""A task from its start to its deferral, against a loopback Jobs API; Airflow's side is a few attributes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from raysweep.errors import ConnectionUnreadableError, JobStoppedError, SpecError, TokenRefusedError
from raysweep.jobs import ClusterConnection, RunningJob
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.lease import read_lease, renew_lease
from raysweep.specs.identity import sweep_id
from raysweep.step import End
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import work
from raysweep_airflow.ends import explained
from raysweep_airflow.hooks import Access, RaySweepHook
from raysweep_airflow.identity import TaskId
from raysweep_airflow.triggers import SweepTrigger
from tests.unit.airflow.tasks import Task, Ti
from tests.unit.jobs.api import Api, serving

LOG = logging.getLogger("tests")


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("raysweep.jobs.client.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("raysweep.step.cancelling.PAUSE_S", 0.01)
    monkeypatch.setattr(work, "ASK_PAUSES_S", (0.01, 0.01))
    with serving(Api()) as api:
        # The far edges: Airflow's connection, and the state of a task in its API server.
        connection = ClusterConnection(address=api.address, trust_env=False)
        monkeypatch.setattr(RaySweepHook, "access", lambda self, **_: Access(cluster=connection))
        monkeypatch.setattr(TaskId, "state", lambda self: "failed")
        yield Task(api, tmp_path / "sweeps")


def killed_at(task: Task, is_moment: Callable[[str, str], bool]) -> None:
    """SIGTERM at that moment: Airflow calls `on_kill`, and the task continues after it returns."""
    was_killed: list[bool] = []

    def trouble(method: str, path: str) -> None:
        if is_moment(method, path) and not was_killed:
            was_killed.append(True)
            task.operator.on_kill()

    task.api.trouble = trouble


@pytest.mark.parametrize("moment", [("GET", "/api/jobs/"), ("PUT", "/api/packages")])
def test_marked_as_failed_before_the_submission_nothing_is_submitted(
    task: Task, moment: tuple[str, str]
) -> None:
    killed_at(task, lambda method, path: method == moment[0] and path.startswith(moment[1]))
    text = "marked failed in Airflow before it was submitted"
    with pytest.raises(AirflowFailException, match=text), explained(LOG):
        task.run()
    assert task.api.jobs == {}


def test_marked_as_failed_in_the_submission_the_job_ends_as_soon_as_it_starts(task: Task) -> None:
    killed_at(task, lambda method, path: (method, path) == ("POST", "/api/jobs/"))
    task.deferred()
    asked = task.asked_to_cancel()
    assert (len(task.api.jobs), asked.names(1)) == (1, True)
    assert "its task was marked failed in Airflow" in asked.reason


def test_a_worker_that_shuts_down_in_the_submission_ends_nothing(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskId, "state", lambda self: "running")
    killed_at(task, lambda method, path: (method, path) == ("POST", "/api/jobs/"))
    task.deferred()
    assert (len(task.api.jobs), task.asked_to_cancel()) == (1, None)


@pytest.mark.parametrize(
    ("job", "expected"), [(None, work.LEASE_S), ({"lease_ttl_s": 60}, 60.0), ({"lease_ttl_s": None}, None)]
)
def test_a_job_has_a_lease_unless_the_dag_says_otherwise(task: Task, job: Any, expected: Any) -> None:
    assert task.deferred(job=job)["lease_ttl_s"] == expected


@pytest.mark.parametrize(
    ("job", "expected"), [(None, 900.0), ({"lease_ttl_s": 60}, 60.0), ({"lease_ttl_s": None}, None)]
)
def test_until_its_trigger_runs_a_job_has_a_short_lease(task: Task, job: Any, expected: Any) -> None:
    """Airflow tells nobody of a task that is marked between its deferral and the start of its trigger."""
    store, run_id = open_store(str(task.storage)), task.deferred(job=job)["job"]["run_id"]
    for _ in range(2):
        lease = read_lease(store, run_id)
        assert (lease.ttl_s if lease is not None else None) == expected
        if lease is not None:
            renew_lease(store, run_id, 7200.0)  # by a trigger; then the next try attaches
        assert task.deferred(job=job)["job"]["how"] == "attached"


def test_a_timeout_counts_from_the_start_of_the_try(task: Task) -> None:
    """Airflow's own does; a submission can take minutes."""
    task.api.submit_delay_s = 1.0
    began = time.time()
    ends_at = task.deferred(execution_timeout=timedelta(hours=1))["ends_at"]
    assert ends_at == pytest.approx(began + 3600, abs=0.5)


def test_what_a_clear_asks_for_is_dropped_once_there_is_a_job(task: Task) -> None:
    task.deferred()
    record = task.store["raysweep"]
    task.store["raysweep"] = record | {"due": "go"}
    task.api.trouble = lambda method, path: 503
    with pytest.raises(Exception, match="503"):
        task.run()
    assert task.store["raysweep"]["due"] == "go"
    task.api.trouble = lambda method, path: None
    task.deferred()
    assert task.store["raysweep"]["due"] is None


def test_a_connection_that_is_not_there_for_a_moment_is_asked_for_again(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, seen = RaySweepHook.access, list[bool]()

    def missing(self: RaySweepHook, *, was_there: bool = False) -> Access:
        seen.append(was_there)
        if len(seen) < 3:
            raise SpecError("conn_id", "there is no connection 'c'", "make one")
        return access(self)

    monkeypatch.setattr(RaySweepHook, "access", missing)
    task.deferred()
    task.deferred()
    assert seen == [False, False, False, True], "after a job it is known to have been there"


def test_a_connection_that_is_not_there_is_said_in_the_end(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ConnectionUnreadableError("c", "the connection could not be read (503)")

    def unreadable(self: RaySweepHook, *, was_there: bool = False) -> Access:
        raise error

    monkeypatch.setattr(RaySweepHook, "access", unreadable)
    with pytest.raises(ConnectionUnreadableError):
        task.run()


# --- marked, cleared, and attached to the job that the mark has asked to end


class Marked:
    """A task whose new try waits for a job that ended as an earlier try was marked."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.job = RunningJob.from_dict(task.deferred()["job"])
        self.mark()

    def mark(self, by: str = "", reason: str = "its task was marked failed in Airflow") -> None:
        of = TaskId(dag_id="d", task_id="sweep", run_id="r")
        self.job.view().ask_to_cancel(reason, by or of.canceller, number=1)

    def end(self) -> End:
        """As its controller does, and as the trigger tells of it."""
        outcome = SweepOutcome(
            sweep_id=self.job.run_id,
            name="flights",
            status="cancelled",
            metric="loss",
            mode="min",
            started_at=0,
            ended_at=1,
            generation=1,
        )
        SweepFolder(open_store(self.job.storage_path), self.job.run_id).write_outcome_if_absent(outcome)
        self.task.api.end(self.job.job_id, "SUCCEEDED", code=0)
        return End(job=self.job, how="ended")

    def stop(self) -> End:
        """As a training, or a driver that had not begun, does: it leaves no outcome."""
        self.task.api.end(self.job.job_id, "FAILED", code=1)
        return End.of_error(self.job, JobStoppedError(self.job.job_id, "its task was marked"))

    def complete(self, end: End) -> Any:
        context = {"ti": Ti(), "task_state_store": self.task.store, "outlet_events": {}}
        with explained(LOG):
            return work.Try(self.task.operator, context).complete(end.to_dict())


@pytest.fixture
def attached(task: Task, monkeypatch: pytest.MonkeyPatch) -> Marked:
    monkeypatch.setattr(TaskId, "state", lambda self: "running")
    monkeypatch.setattr("raysweep.jobs.attach.SETTLE_S", 0.05)
    return Marked(task)


@pytest.mark.parametrize("how", ["end", "stop"])
def test_a_job_that_a_mark_had_ended_is_gone_on_with_by_the_try_after_the_clear(
    attached: Marked, how: str
) -> None:
    with pytest.raises(TaskDeferred) as raised:
        attached.complete(getattr(attached, how)())
    trigger: Any = raised.value.trigger
    job = trigger.job
    assert (job.how, job.number) == ("submitted", 2)
    assert len(attached.task.api.jobs) == 2
    assert attached.task.store["raysweep"]["due"] is None
    assert job.view().outcome() is None, "what waits now waits for the next outcome"


@pytest.mark.parametrize("how", ["end", "stop"])
def test_it_is_not_while_the_mark_stands(attached: Marked, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskId, "state", lambda self: "failed")
    with pytest.raises(AirflowFailException):
        attached.complete(getattr(attached, how)())
    assert len(attached.task.api.jobs) == 1


def test_nor_where_that_cannot_be_found_out(attached: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: TaskId) -> str:
        raise OSError("the API server does not answer")

    monkeypatch.setattr(TaskId, "state", fails)
    with pytest.raises(AirflowFailException):
        attached.complete(attached.end())
    assert len(attached.task.api.jobs) == 1


@pytest.mark.parametrize(
    "asked", [{"by": "a person"}, {"reason": "execution_timeout of 1:00:00 is over"}], ids=str
)
def test_nor_where_it_was_cancelled_otherwise(attached: Marked, asked: dict[str, str]) -> None:
    attached.mark(**asked)
    with pytest.raises(AirflowFailException):
        attached.complete(attached.end())
    with pytest.raises(AirflowFailException):
        attached.complete(attached.stop())
    assert len(attached.task.api.jobs) == 1


def test_nor_at_the_tasks_own_limit(attached: Marked) -> None:
    end = attached.end()
    with pytest.raises(AirflowFailException, match="an hour is over"):
        attached.complete(End(job=end.job, how="timeout", limit="an hour"))
    assert len(attached.task.api.jobs) == 1


def test_a_retry_of_that_try_goes_on_too(attached: Marked) -> None:
    """It has met something that passes before it could."""
    end = attached.end()
    attached.task.api.trouble = lambda method, path: 503
    with pytest.raises(Exception, match="503"):
        attached.complete(end)
    attached.task.api.trouble = lambda method, path: None
    assert attached.task.deferred()["job"]["number"] == 2


@pytest.fixture
def passwords(task: Task, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Airflow's connection has as its token, one read after the other; the last one stays."""
    kept = ["evening"]

    def read(self: RaySweepHook, conn_id: str = "") -> Connection:
        password = kept.pop(0) if len(kept) > 1 else kept[0]
        return Connection(
            conn_id="c", conn_type="raysweep", host=task.api.address, password=password, extra="{}"
        )

    async def aread(self: RaySweepHook, conn_id: str = "") -> Connection:
        return read(self)

    monkeypatch.undo()
    monkeypatch.setattr(work, "ASK_PAUSES_S", (0.01, 0.01, 0.01))
    monkeypatch.setattr(RaySweepHook, "get_connection", read)
    monkeypatch.setattr(RaySweepHook, "aget_connection", aread)
    monkeypatch.setattr("raysweep.jobs.follow.FIRST_PAUSE_S", 0.01)
    task.api.token = "evening"
    return kept


def test_a_trigger_takes_up_a_token_that_was_rotated(task: Task, passwords: list[str]) -> None:
    """Airflow's connection has the new one: no retry is spent, and the wait continues at once."""
    trigger = SweepTrigger(**task.deferred())

    async def night() -> dict[str, Any]:
        waiting = asyncio.create_task(trigger.follow())
        while not task.api.count("GET", f"/api/jobs/{trigger.job.job_id}"):  # noqa: ASYNC110  the API tells
            await asyncio.sleep(0.01)
        task.api.token = passwords[0] = "morning"
        task.api.end(trigger.job.job_id, "STOPPED")
        return await asyncio.wait_for(waiting, 30)

    event = asyncio.run(night())
    # The end of the job, and not a refusal, is what it has seen.
    assert isinstance(End.from_dict(event).result(), JobStoppedError)


def test_a_task_takes_up_a_token_that_was_rotated_before_its_submission(
    task: Task, passwords: list[str]
) -> None:
    task.api.token = "morning"
    passwords.append("morning")
    task.deferred()


def test_a_submission_waits_for_a_token_that_airflow_gets_later(task: Task, passwords: list[str]) -> None:
    task.api.token = "morning"
    passwords[:] = ["evening", "evening", "evening", "morning"]
    task.deferred()


def test_a_wrong_token_fails_for_good(task: Task, passwords: list[str]) -> None:
    passwords[:] = ["wrong"]
    with pytest.raises(TokenRefusedError):
        task.run()


def test_the_hooks_cluster_takes_up_a_rotated_token(task: Task, passwords: list[str]) -> None:
    cluster = RaySweepHook("c").cluster()
    assert cluster.jobs() == ()
    task.api.token = passwords[0] = "morning"
    assert cluster.jobs() == ()


@pytest.mark.parametrize(
    ("changes", "is_ended"),
    [
        ({}, True),
        ({"key": "other/sweep/r", "run_id": sweep_id("flights", "other/sweep/r")}, False),
        ({"run_id": "../elsewhere"}, False),
        ({"storage_path": "/elsewhere"}, False),
        ({"job_id": "somebody-elses-0123456789.1"}, False),
    ],
)
def test_the_earlier_job_of_another_dag_is_not_ended(
    task: Task, changes: dict[str, str], is_ended: bool, tmp_path: Path
) -> None:
    """What a task had before is in the task state store, which people may edit."""
    key = "d/sweep/r/best-0123456789ab"
    earlier: dict[str, Any] = {
        "address": task.api.address,
        "kind": "sweep",
        "run_id": sweep_id("flights", key),
        "key": key,
        "storage_path": str(tmp_path / "sweeps"),
        "number": 1,
        "how": "submitted",
    } | changes
    earlier.setdefault("job_id", f"{earlier['run_id']}.1")
    task.api.jobs[earlier["job_id"]] = {
        "submission_id": earlier["job_id"],
        "status": "PENDING",
        "message": "",
    }
    task.store["raysweep_job"] = earlier
    task.deferred()
    assert (task.api.jobs[earlier["job_id"]]["status"] == "STOPPED") is is_ended
