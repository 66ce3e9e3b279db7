"""A try's key, spec and outcome, against a real storage; Airflow's side is a dict and a few attributes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import DAG

import raysweep as rs
from raysweep.errors import SpecError, StorageError
from raysweep.outcome import TrainOutcome
from raysweep.runs.reading.view import RunView
from raysweep.runs.training import RunFolder
from raysweep.specs import identity
from raysweep.specs.outline import outline
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import TrainOperator
from raysweep_airflow.compat import AirflowSkipException
from raysweep_airflow.results import top_k
from raysweep_airflow.work import JOB_KEY, Attempt, Try
from tests.begun_trainings import begin_training
from tests.unit.airflow.trying import BASE, Store, Ti, Tries


@pytest.fixture(params=["kept", "deleted"])
def tries(tmp_path: Path, request: pytest.FixtureRequest) -> Tries:
    """With the rows of the task state store, and where Airflow has deleted them between any two tries."""
    return Tries(tmp_path / "sweeps", forgets=request.param == "deleted")


def test_all_tries_of_a_task_are_one_sweep(tries: Tries) -> None:
    assert [tries.run().request.run.key for _ in range(3)] == [BASE] * 3
    tries.clear()
    assert tries.run().request.run.key == BASE


def test_a_retry_hands_on_what_there_is(tries: Tries) -> None:
    tries.run()
    outcome = tries.end(BASE, "completed")
    assert tries.run(on_clear="restart").ended == outcome


def test_a_cleared_result_is_reused(tries: Tries) -> None:
    tries.run()
    outcome = tries.end(BASE, "completed")
    tries.clear()
    assert tries.run().ended == outcome


def test_a_restart_is_one_new_sweep_for_all_its_tries(tries: Tries) -> None:
    tries.run()
    tries.end(BASE, "completed")
    tries.clear()
    first = tries.run(on_clear="restart")
    assert (first.request.run.key, first.ended) == (f"{BASE}#2", None)
    assert tries.run(on_clear="restart").request.run.key == f"{BASE}#2"
    outcome = tries.end(f"{BASE}#2", "completed")
    assert tries.run(on_clear="restart").ended == outcome
    tries.clear()
    assert tries.run(on_clear="restart").request.run.key == f"{BASE}#5"


def test_a_restart_leaves_alone_what_still_runs(tries: Tries) -> None:
    tries.run()
    tries.clear()
    assert tries.run(on_clear="restart").request.run.key == BASE


def test_a_restart_of_what_has_not_begun_follows_its_spec(tries: Tries) -> None:
    """Its job is pending: only the job's handle, which the task remembers, knows the spec."""
    first = tries.run()
    tries.store.set(JOB_KEY, {"run_id": first.request.run.id, "spec": outline(first.request.spec)})
    mended = tries.spec().replace(param_space={"x": {"uniform": [0, 500]}})
    tries.clear()
    assert tries.run(on_clear="restart").request.run.key == BASE
    tries.clear()
    assert tries.run(mended).request.run.key == BASE, "its submission is refused, with the fix"
    tries.clear()
    # Without its row the spec of the pending job is not known: the submission compares them, and is refused.
    key = BASE if tries.forgets else f"{BASE}#4"
    assert tries.run(mended, on_clear="restart").request.run.key == key


def test_a_failed_sweep_begins_anew_when_cleared_and_only_then(tries: Tries) -> None:
    tries.run()
    outcome = tries.end(BASE, "failed", finished=0)
    assert tries.run().ended == outcome
    tries.clear()
    again = tries.run()
    assert (again.request.run.key, again.ended) == (f"{BASE}#3", None)


def test_a_cancelled_sweep_goes_on_when_cleared_and_only_then(tries: Tries) -> None:
    tries.run()
    outcome = tries.end(BASE, "cancelled")
    assert tries.run().ended == outcome
    tries.clear()
    again = tries.run()
    assert (again.request.run.key, again.ended, again.resumes) == (BASE, None, True)


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_failed_trials_run_again_when_cleared_and_only_then(tries: Tries, status: str) -> None:
    tries.run()
    outcome = tries.end(BASE, status)
    assert tries.run(on_clear="retry").ended == outcome
    tries.clear()
    for _ in range(2):
        again = tries.run(on_clear="retry")
        assert (again.request.run.key, again.ended, again.retries) == (BASE, None, True)
    outcome = tries.end_again(BASE, status)
    after = tries.run(on_clear="retry")
    assert (after.ended, after.retries) == (outcome, False)


def test_a_result_of_another_spec_is_not_handed_on(tries: Tries) -> None:
    tries.run()
    tries.end(BASE, "completed")
    tries.clear()
    other = tries.spec().replace(metric="other")
    with pytest.raises(SpecError, match='clear the task with on_clear="restart"'):
        tries.run(other)
    tries.clear()
    assert tries.run(other, on_clear="restart").request.run.key == f"{BASE}#3"


@pytest.mark.parametrize("number_of_failures", [1, 2])
def test_a_clear_is_kept_until_it_is_carried_out(tries: Tries, number_of_failures: int) -> None:
    """Its try fails before anything was submitted: the retry still knows what the person asked for."""
    tries.run()
    tries.end(BASE, "cancelled")
    tries.clear()
    for _ in range(number_of_failures):
        again = tries.run()
        assert (again.request.run.key, again.ended, again.resumes) == (BASE, None, True)
    assert tries.carried_out().resumes is True
    outcome = tries.end_again(BASE, "cancelled")
    assert tries.run().ended == outcome, "what ended since is not continued with"


def test_a_clear_that_died_between_submission_and_record_is_not_done_twice(tries: Tries) -> None:
    tries.run()
    tries.end(BASE, "cancelled")
    tries.clear()
    assert tries.run().resumes
    outcome = tries.end_again(BASE, "cancelled")
    again = tries.run()
    assert (again.ended, again.resumes) == (outcome, False)


def test_a_cleared_partial_result_goes_on_until_the_later_deadline_after_an_error(tries: Tries) -> None:
    spec = tries.spec(deadline="06:00 Europe/Berlin")
    first = tries.run(spec, on_clear="resume")
    tries.end(BASE, "deadline", spec=cast(rs.SweepSpec, first.request.spec))
    tries.age(timedelta(days=2))
    tries.clear()
    cleared, retry = (tries.run(spec, on_clear="resume") for _ in range(2))
    assert (cleared.ended, retry.ended, retry.resumes) == (None, None, True)
    assert deadline_of(retry) == deadline_of(cleared) > datetime.now(UTC)


def test_a_job_that_was_stopped_without_an_outcome_goes_on_after_an_error_too(tries: Tries) -> None:
    tries.run()
    tries.clear()
    assert [tries.run().resumes for _ in range(2)] == [True, True]
    tries.carried_out()
    assert tries.run().resumes is False


def test_a_restart_that_met_an_error_is_one_restart(tries: Tries) -> None:
    tries.run()
    tries.end(BASE, "completed")
    tries.clear()
    keys = [tries.run(on_clear="restart").request.run.key for _ in range(3)]
    assert keys == [f"{BASE}#2"] * 3


def test_a_clear_after_retries_was_lowered_is_one(tries: Tries) -> None:
    """`max_tries` is then what it was: tries so far plus retries."""
    tries.run(retries=2)
    outcome = tries.end(BASE, "cancelled")
    tries.clear(retries=1)
    assert tries.max_tries == 2
    assert tries.run(retries=1).resumes is True
    # A retry under lowered `retries`, while another task of the run was cleared before: neither is a clear.
    fresh = Tries(tries.storage / "fresh")
    fresh.run(retries=2)
    outcome = fresh.end(BASE, "cancelled")
    assert fresh.run(retries=2).ended == outcome
    fresh.clears += 1
    assert fresh.run(retries=1).ended == outcome


def deadline_of(attempt: Attempt) -> datetime:
    assert isinstance(attempt.request.spec, rs.SweepSpec)
    deadline = attempt.request.spec.stop.deadline
    assert isinstance(deadline, datetime)
    return deadline


def test_a_deadline_by_the_clock_is_the_same_for_every_retry(tries: Tries) -> None:
    spec = tries.spec(deadline="06:00 Europe/Berlin")
    first = deadline_of(tries.run(spec))
    assert first > datetime.now(UTC)
    assert deadline_of(tries.run(spec)) == first
    # As if that had been two days ago: a retry still means the same moment, a clear the next one.
    tries.age(timedelta(days=2))
    assert deadline_of(tries.run(spec)) < datetime.now(UTC)
    tries.clear()
    assert deadline_of(tries.run(spec)) > datetime.now(UTC)


def test_a_deadline_counts_from_the_logical_date_if_asked_to(tries: Tries) -> None:
    tries.context["logical_date"] = datetime(2096, 3, 24, 22, tzinfo=UTC)
    spec = tries.spec(deadline="06:00 Europe/Berlin")
    attempt = tries.run(spec, deadline_from="logical_date")
    # The clocks go forward in that night.
    assert deadline_of(attempt) == datetime(2096, 3, 25, 4, tzinfo=UTC)


def test_in_a_backfill_of_a_past_day_a_sweep_has_as_long_as_on_that_day(tries: Tries) -> None:
    """22:00 to 06:00, one hour less where the clocks go forward; the same for every retry."""
    tries.context["logical_date"] = datetime(2026, 3, 28, 21, tzinfo=UTC)
    spec = tries.spec(deadline="06:00 Europe/Berlin")
    first = deadline_of(tries.run(spec, deadline_from="logical_date"))
    assert timedelta(0) <= datetime.now(UTC) + timedelta(hours=7) - first < timedelta(minutes=1)
    assert deadline_of(tries.run(spec, deadline_from="logical_date")) == first


def test_a_run_that_begins_late_keeps_its_deadline(tries: Tries) -> None:
    tries.context["logical_date"] = datetime.now(UTC) - timedelta(minutes=5)
    spec = tries.spec(deadline=(datetime.now(UTC) + timedelta(minutes=2)).strftime("%H:%M:%S") + " UTC")
    deadline = deadline_of(tries.run(spec, deadline_from="logical_date"))
    assert deadline - datetime.now(UTC) < timedelta(minutes=3)


def test_a_run_without_a_logical_date_says_so(tries: Tries) -> None:
    with pytest.raises(SpecError, match="this run has no logical date"):
        tries.run(deadline_from="logical_date")


def test_a_timeout_of_the_task_is_a_deadline_of_the_sweep(tries: Tries) -> None:
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    first = deadline_of(tries.run(execution_timeout=hour))
    assert timedelta(minutes=57) < first - now < timedelta(minutes=59)
    assert deadline_of(tries.run(execution_timeout=hour)) == first
    early = (now + timedelta(minutes=5)).isoformat()
    tries.store.clear()
    assert deadline_of(tries.run(tries.spec(deadline=early), execution_timeout=hour)).isoformat() == early


def test_a_cleared_training_of_another_best_config_is_another_training(tmp_path: Path) -> None:
    """By the defaults: its own `on_clear="reuse"` is not held against a config that it did not choose."""
    store = Store()
    spec = {"name": "full", "trainable": "examples.quick:steps", "storage_path": str(tmp_path)}

    def run(x: float, number: int, **fields: Any) -> Attempt:
        with DAG("night", schedule=None):
            outcome = {"best": {"config": {"x": x}}}
            operator = TrainOperator(task_id="train", spec=spec | fields, outcome=outcome)
        ti = Ti(number, number - 1)
        ti.task_id = "train"
        context = {"ti": ti, "task_state_store": store}
        return Try(operator, context).attempt(operator.asked(context, spec | fields))

    first = run(0.5, 1)
    request = first.request
    assert isinstance(request.spec, rs.TrainSpec)
    folder = RunFolder(open_store(str(tmp_path)), request.run.id)
    begin_training(folder, request.spec, request.run.key)
    ended = TrainOutcome(run_id=request.run.id, name="full", status="completed", started_at=0, ended_at=1)
    folder.write_outcome(ended)
    assert run(0.5, 2).ended == folder.read_outcome(), "the same best, cleared: it is reused"
    other = run(0.7, 3)
    assert other.ended is None
    assert other.request.run.id != request.run.id
    assert request.run.key.startswith("night/train/manual__1/best-")
    with pytest.raises(SpecError, match=r'max_failures|trainable: .* on_clear="restart"'):
        run(0.5, 4, trainable="examples.quick:other")


def test_the_best_of_what_a_gate_refused_are_each_skipped() -> None:
    """As `train.expand(outcome=top_k(gate.output))` gives them to a task each."""
    handed_on = {"promoted": False, "gate": {"why": "+0.001 < 0.002"}, "uri": "/sweeps/s"}
    listed = top_k.function(handed_on | {"top_k": [{"config": {"x": 1}}, {"config": {"x": 2}}]}, 1)
    assert [each["config"] for each in listed] == [{"x": 1}]
    with DAG("night", schedule=None):
        operator = TrainOperator(task_id="train", spec={"trainable": "m:f"}, outcome=listed[0])
    with pytest.raises(AirflowSkipException, match=r"training skipped: \+0\.001 < 0\.002"):
        operator.known({})
    with pytest.raises(SpecError, match="outcome: lists no trials"):
        top_k.function({"status": "completed"})


@pytest.mark.parametrize("text", [b"{", b"[1]", b"", b'{"max_tries": "many"}'])
def test_a_copy_that_cannot_be_read_counts_as_none(tries: Tries, text: bytes) -> None:
    tries.run()
    outcome = tries.end(BASE, "completed")
    sweep_id = identity.sweep_id("flights", BASE)
    open_store(str(tries.storage)).put(f"{sweep_id}/step.json", text)
    assert tries.run().ended == outcome


def test_a_storage_that_takes_no_copy_is_said_and_costs_nothing(
    tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: RunView, fields: Any) -> None:
        raise StorageError("step.json", "read-only")

    monkeypatch.setattr(RunView, "keep_step", fail)
    assert tries.run().request.run.key == BASE
