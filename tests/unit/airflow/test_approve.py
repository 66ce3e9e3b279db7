"""The approval operator by itself: a gate that has ended, and Airflow's answers as events."""

from __future__ import annotations

import shlex
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.providers.standard.utils.skipmixin import XCOM_SKIPMIXIN_KEY
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped, TaskAwaitingInput
from markdown_it import MarkdownIt

from raysweep.errors import SpecError, StorageUnavailableError
from raysweep.outcome import Decision
from raysweep.pipeline import prepare_gate, with_gate
from raysweep.pipeline.candidate import Candidate, find_candidate
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.specs.approval import ApprovalSpec
from raysweep.step import brief
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import ApproveOperator, GateOperator, SweepOperator, TrainOperator
from tests.unit.pipeline.gates import GATE, configs, gave, make_spec, night, stored, swept

LINE = Line(name="flights", metric="auc", mode="max")
SPEC: dict[str, Any] = {
    "name": "flights",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "auc",
    "mode": "max",
}


class Store(dict[str, Any]):
    """In place of the task state store."""

    def set(self, key: str, value: Any, retention: Any = None) -> None:
        self[key] = value


class Ti:
    """What the operator needs of a task instance."""

    dag_id, task_id, run_id, map_index, id = "d", "approve", "r", -1, "0"

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


class Task:
    """One approval task, and its tries."""

    def __init__(self, storage: Path, asked: list[dict[str, Any]]) -> None:
        self.storage, self.asked, self.store, self.ti = storage, asked, Store(), Ti()

    def outcome(self, timeout: float = 3600.0, on_silence: Any = "reject") -> dict[str, Any]:
        """What the gate hands on."""
        verdict = night(
            self.storage, "n1", 0.5, approval=ApprovalSpec(timeout=timeout, on_silence=on_silence)
        )
        outcome = swept("n1", 0.5).model_copy(update={"uri": f"{self.storage}/n1"})
        return brief(with_gate(outcome, verdict))

    def operator(self, outcome: Any, **options: Any) -> Any:
        with DAG("d", schedule=None):
            sweep = SweepOperator(task_id="sweep", spec=SPEC)
            gate = GateOperator(task_id="gate", spec=SPEC, outcome=sweep.output)
            made = ApproveOperator(task_id="approve", outcome=gate.output, **options)
            TrainOperator(task_id="train", spec={"trainable": "m:f", "name": "t"}, outcome=made.output)
        made.outcome = outcome
        return made

    @property
    def context(self) -> dict[str, Any]:
        ti = self.ti
        return {"ti": ti, "task_instance": ti, "task_state_store": self.store, "outlet_events": {}}

    def execute(self, outcome: Any, **options: Any) -> Any:
        made = self.operator(outcome, **options)
        return made.execute(self.context | {"task": made})

    def complete(self, outcome: Any, event: dict[str, Any]) -> Any:
        made = self.operator(outcome)
        return made.execute_complete(self.context | {"task": made}, event)

    def decide(self, outcome: Any, *, approved: bool, by: str = "cli") -> None:
        candidate = find_candidate(outcome)
        assert candidate is not None
        candidate.decide(Decision(approved=approved, by=by, at=time.time()))

    @property
    def champion(self) -> Any:
        return read_champion(open_store(self.storage), LINE).champion


def answer(chosen: str, note: str = "", name: str = "ann") -> dict[str, Any]:
    user = {"id": "7", "name": name}
    at = datetime.now(UTC)
    return {
        "chosen_options": [chosen],
        "params_input": {"note": note},
        "responded_at": at,
        "responded_by_user": user,
    }


TIMEOUT = {"error": "no response", "error_type": "timeout"}


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **fields: asked.append(fields))
    return Task(tmp_path, asked)


def test_it_asks_with_the_numbers_and_waits_without_a_slot(task: Task) -> None:
    with pytest.raises(TaskAwaitingInput) as raised:
        task.execute(task.outcome(), assigned_users=[{"id": "7", "name": "ann"}])
    assert raised.value.timeout == timedelta(minutes=5)
    [asked] = task.asked
    assert asked["subject"] == "Promote flights@n1?"
    assert asked["options"] == ["Approve", "Reject"]
    assert asked["assigned_users"] == [{"id": "7", "name": "ann"}]
    body = asked["body"]
    assert "0.501" in body
    assert "| trial 00000 |" in body
    assert f"raysweep approve flights@n1 --storage {task.storage}" in body
    assert "[Report](" in body
    assert "waits for approval until" in body
    assert list(asked["params"]) == ["note"]


HOSTILE = "a` ![x](http://h/leak.png) <img src=http://h/b.png> `$(touch /tmp/pwned)"


def test_a_sweeps_name_is_text_in_the_form_and_in_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **fields: asked.append(fields))
    spec = make_spec(tmp_path, name=HOSTILE)
    outcome = stored(spec, swept("n1", 0.7).model_copy(update={"name": HOSTILE, "key": HOSTILE}))
    prepared = prepare_gate(spec, outcome, GATE, ApprovalSpec(timeout="4h"))
    verdict = prepared.settle(gave(prepared, *(c["x"] for _ in range(2) for c in configs(prepared))))
    given = brief(with_gate(outcome, verdict))
    with pytest.raises(TaskAwaitingInput):
        Task(tmp_path, asked).execute(given)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(asked[0]["body"])
    kinds = {each.type for token in tokens for each in (token, *(token.children or ()))}
    assert kinds.isdisjoint({"image", "html_block", "html_inline"})
    [command] = (token.content for token in tokens if token.type == "fence")
    night = f"{HOSTILE}@{HOSTILE}"
    assert shlex.split(command) == ["raysweep", "approve", night, "--storage", str(tmp_path)]


def test_the_form_of_a_dag_with_parameters_has_the_note_alone(task: Task) -> None:
    with DAG("d", schedule=None, params={"example": "flights"}):
        approve = ApproveOperator(task_id="approve", outcome={})
    assert list(approve.serialized_params) == ["note"]


def test_approved_it_hands_the_promotion_on(task: Task) -> None:
    outcome = task.outcome()
    result = task.complete(outcome, answer("Approve", "looked at\nthe curves"))
    assert result["promoted"] is True
    assert result["gate"]["approval"]["decision"]["by"] == "ann"
    assert "approved by ann" in result["why"]
    assert "looked at the curves" in result["gate"]["why"]
    assert result["best"] == outcome["best"]
    assert task.champion.sweep_id == "n1"


def test_rejected_it_skips_what_is_downstream_and_hands_the_verdict_on(task: Task) -> None:
    with pytest.raises(DownstreamTasksSkipped) as raised:
        task.complete(task.outcome(), answer("Reject"))
    assert raised.value.tasks == ["train"]
    result = task.ti.pushed["return_value"]
    assert result["promoted"] is False
    assert "rejected by ann" in result["gate"]["why"]
    assert task.ti.pushed[XCOM_SKIPMIXIN_KEY] == {"skipped": ["train"]}
    assert task.champion is None


def test_the_first_decision_counts(task: Task) -> None:
    outcome = task.outcome()
    task.decide(outcome, approved=True)
    result = task.complete(outcome, answer("Reject"))
    assert result["promoted"] is True
    assert result["gate"]["approval"]["decision"]["by"] == "cli"


def test_what_was_decided_elsewhere_is_seen_without_an_answer(task: Task) -> None:
    outcome = task.outcome()
    with pytest.raises(TaskAwaitingInput):
        task.complete(outcome, TIMEOUT)
    assert task.asked == [], "to ask anew would delete an answer that was given since"
    task.decide(outcome, approved=True)
    assert task.complete(outcome, TIMEOUT)["promoted"] is True
    assert task.execute(outcome)["promoted"] is True, "a clear passes at once"


@pytest.mark.parametrize("on_silence", ["reject", "promote"])
def test_silence_means_what_the_gate_says(task: Task, on_silence: str) -> None:
    outcome = task.outcome(timeout=0.05, on_silence=on_silence)
    time.sleep(0.1)
    if on_silence == "promote":
        assert task.complete(outcome, TIMEOUT)["gate"]["approval"]["decision"]["by"] == "silence"
        return
    with pytest.raises(DownstreamTasksSkipped):
        task.complete(outcome, TIMEOUT)
    assert "rejected by silence" in task.ti.pushed["return_value"]["gate"]["why"]


def test_it_looks_again_when_the_time_is_over(task: Task) -> None:
    with pytest.raises(TaskAwaitingInput) as raised:
        task.execute(task.outcome(timeout=30.0))
    assert timedelta(seconds=25) < raised.value.timeout <= timedelta(seconds=31)


def test_what_was_promoted_at_once_passes(task: Task) -> None:
    verdict = night(task.storage, "n1", 0.5)
    outcome = brief(with_gate(swept("n1", 0.5).model_copy(update={"uri": f"{task.storage}/n1"}), verdict))
    assert task.execute(outcome) == outcome


def test_what_the_gate_refused_is_not_asked_about_and_skips_what_is_downstream(task: Task) -> None:
    night(task.storage, "n0", 0.9)
    with pytest.raises(DownstreamTasksSkipped):
        task.execute(task.outcome())
    assert task.asked == []
    assert "not promoted" in task.ti.pushed["return_value"]["gate"]["why"]


def test_an_answer_that_the_storage_did_not_take_is_written_by_the_next_try(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = task.outcome()

    def down(self: Candidate, asked: Any = None) -> Any:
        raise StorageUnavailableError("s3://bucket", "does not answer", "try again")

    with monkeypatch.context() as patched:
        patched.setattr(Candidate, "decide", down)
        with pytest.raises(StorageUnavailableError):
            task.complete(outcome, answer("Approve"))
    assert task.execute(outcome)["gate"]["approval"]["decision"]["by"] == "ann"
    assert task.asked == []


def test_a_storage_that_does_not_answer_while_it_waits_costs_no_retry(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = task.outcome()

    def down(self: Candidate, asked: Any = None) -> Any:
        raise StorageUnavailableError("s3://bucket", "does not answer", "try again")

    monkeypatch.setattr(Candidate, "decide", down)
    with pytest.raises(TaskAwaitingInput) as raised:
        task.complete(outcome, TIMEOUT)
    assert raised.value.timeout == timedelta(minutes=5)


def test_where_the_gate_hands_a_decision_on_meanwhile_it_goes_by_that(task: Task) -> None:
    outcome = task.outcome()
    task.decide(outcome, approved=True)
    candidate = find_candidate(outcome)
    assert candidate is not None
    told = candidate.told(outcome)
    assert task.complete(told, TIMEOUT) == told


def test_a_decision_replaces_the_verdict_in_the_reason_whatever_the_verdict_says(task: Task) -> None:
    outcome = task.outcome()
    task.decide(outcome, approved=True)
    cut = {**outcome, "gate": outcome["gate"] | {"why": outcome["gate"]["why"][:20] + "…"}}
    candidate = find_candidate(cut)
    assert candidate is not None
    told = candidate.told(cut)
    assert "approved by cli" in told["gate"]["why"]
    assert told["why"] == f"{outcome['own_why']}; {told['gate']['why']}"


@pytest.mark.parametrize("given", [None, {}, {"uri": "/s/n1", "gate": None}])
def test_what_no_gate_handed_on_is_refused(task: Task, given: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"outcome: .*outcome=gate\.output"):
        task.execute(given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"defaults": ["Approve"]}, "defaults: cannot be set; leave it out; GateOperator"),
        ({"response_timeout": timedelta(1)}, "response_timeout: cannot be set"),
        ({"params": {"why": "x"}}, "params: cannot be set"),
        ({"check_every": timedelta(0)}, "check_every: is 0:00:00; give 10 seconds or more"),
    ],
)
def test_what_the_gate_says_is_not_said_twice(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        ApproveOperator(task_id="approve", outcome={}, **options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("maybe", "approval: 'maybe' is not an approval"),
        ({"timeout": "soon"}, "approval.timeout: 'soon' is not a duration"),
        ({"timout": 5}, "approval.timout"),
    ],
)
def test_a_wrong_approval_is_refused_where_the_dag_is_read(given: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        GateOperator(task_id="gate", spec=SPEC, outcome={}, approval=given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seds": 3}, r"gate\.seds: unknown field 'seds'; did you mean 'seeds'"),
        ({"seeds": 0}, r"gate\.seeds: must be >= 1"),
        ({"seeds": 1}, r"gate\.seeds: 1 seed has no spread"),
        ({"metric": "q"}, r"gate\.mode: is required: 'q' is not one of the sweep's metrics"),
        ({"metric": "auc", "mode": "min"}, r"gate\.mode: is min for 'auc', but the sweep has mode max"),
    ],
)
def test_a_wrong_gate_is_refused_where_the_dag_is_read(given: Any, said: str) -> None:
    """And not after the night's sweep has run."""
    with DAG("d", schedule=None), pytest.raises(SpecError, match=said):
        GateOperator(task_id="gate", spec=SPEC, outcome={}, gate=given)
    with DAG("d", schedule=None):
        GateOperator(task_id="gate", spec=SPEC, outcome={}, gate={"seeds": "{{ params.seeds }}"})


def test_a_training_behind_a_gate_that_waits_is_skipped(task: Task) -> None:
    from raysweep.step import why_not_trained

    assert "waits for approval until" in why_not_trained(task.outcome())
