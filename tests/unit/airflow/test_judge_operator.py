"""The judge as a task: a night that was promoted and trained, and how its evaluations end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskAwaitingInput,
)

from raysweep.errors import SpecError, SweepFailedError
from raysweep.outcome import Decision
from raysweep.pipeline.candidate import find_candidate
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.runs.across_runs.releases import roll_back
from raysweep.specs.approval import ApprovalSpec
from raysweep.step.brief import MAX_BYTES, brief, size_bytes
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import ApproveOperator, GateOperator, JudgeOperator, SweepOperator, TrainOperator, work
from raysweep_airflow.lineage import of_gate
from tests.unit.airflow.trying import Store
from tests.unit.pipeline.gates import configs, gave, make_spec, stored, swept
from tests.unit.pipeline.judgements import JUDGE, evaluated, promoted, trained
from tests.unit.runs.across_runs.book import OWN, Book

LINE = Line(name="flights", metric="auc", mode="max")
RELEASED = Asset("flights-released")
SPEC: dict[str, Any] = {
    "name": "flights",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "auc",
    "mode": "max",
}
TRAIN = {"name": "full", "trainable": "m:f"}
ASKED = ApprovalSpec(after="judge", timeout=3600.0)


class Ti:
    """What operators need of a task instance."""

    dag_id, task_id, run_id, map_index, id, try_number, max_tries = "d", "judge", "r", -1, "0", 1, 2

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


class Event:
    extra: dict[str, Any] | None = None


class Judged:
    """A try of the task, as it goes on once its evaluations have ended."""

    def __init__(self, outcome: Any, training: Any, **options: Any) -> None:
        with DAG("d", schedule=None) as dag:
            given: dict[str, Any] = {"judge": JUDGE, **options}
            self.operator = JudgeOperator(
                task_id="judge", spec=SPEC, outcome=outcome, trained=training, outlets=[RELEASED], **given
            )
        self.ti, self.event = Ti(), Event()
        self.context: dict[str, Any] = {
            "ti": self.ti,
            "task_state_store": Store(),
            "dag": dag,
            "outlet_events": {RELEASED: self.event},
        }

    def known(self) -> dict[str, Any] | None:
        return self.operator.known(self.context)

    def ended(self, **how: Any) -> dict[str, Any]:
        """The result of the task, once the evaluations have ended so."""
        end = evaluated(self.operator._run(self.context), **how)
        result: dict[str, Any] = work.Try(self.operator, self.context).finish(end)
        return result


def champion_of(storage: Path) -> str:
    champion = read_champion(open_store(storage), LINE).champion
    return champion.key if champion is not None else ""


def test_only_a_model_that_passed_is_released_announced_and_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Book, "releases", [])
    first = Judged(promoted(tmp_path, "n1"), trained(tmp_path, "n1"), registry=OWN)
    assert first.known() is None
    result = first.ended()
    assert (result["released"], result["judgement"]["verdict"], champion_of(tmp_path)) == (
        True,
        "passed",
        "n1",
    )
    assert result["model_uri"].endswith("/train-n1/model")
    assert result["registered"] == "registered: version v-n1"
    assert [each.source for each in Book.releases] == [result["model_uri"]]
    assert first.event.extra is not None
    assert first.event.extra["champion"]["key"] == "n1"
    assert first.known() == result, "judged once, it says the same"

    second = Judged(promoted(tmp_path, "n2", 0.7), trained(tmp_path, "n2", -0.1), registry=OWN)
    result = second.ended()
    assert (result["released"], result["judgement"]["reasons"], champion_of(tmp_path)) == (
        False,
        ["not_better"],
        "n1",
    )
    assert result["promoted"] is True, "by its gate"
    assert "is 0.1 worse" in result["why"]
    assert second.event.extra is None
    assert second.operator.outlets == []
    assert [each.sweep_id for each in Book.releases] == ["n1"]
    assert size_bytes(result) <= MAX_BYTES

    third = Judged(promoted(tmp_path, "n3", 0.8), trained(tmp_path, "n3", 0.01), registry=OWN)
    assert third.ended()["judgement"]["test"] == "permutation"
    assert [each.sweep_id for each in Book.releases] == ["n1", "n3"]
    roll_back(open_store(tmp_path), LINE, by="ann")
    assert third.known() is not None, "what was released is not judged again"


def test_evaluations_that_all_failed_are_a_verdict_that_a_clear_tries_again(tmp_path: Path) -> None:
    outcome, training = promoted(tmp_path, "n1"), trained(tmp_path, "n1")
    failed = Judged(outcome, training).ended(fails=True)
    assert (failed["released"], failed["judgement"]["verdict"]) == (False, "undecided")
    assert "KeyError: 'holdout'" in failed["judgement"]["why"]
    again = Judged(outcome, training)
    assert again.known() is None
    assert again.operator.on_clear == "retry"
    assert again.ended()["released"] is True


def test_a_cancelled_evaluation_decides_nothing(tmp_path: Path) -> None:
    judged = Judged(promoted(tmp_path, "n1"), trained(tmp_path, "n1"))
    end = evaluated(judged.operator._run(judged.context)).model_copy(update={"status": "cancelled"})
    with pytest.raises(SweepFailedError):
        work.Try(judged.operator, judged.context).finish(end)
    assert judged.known() is None


def test_a_training_that_a_limit_cut_is_refused_without_an_evaluation(tmp_path: Path) -> None:
    judged = Judged(promoted(tmp_path, "n1"), trained(tmp_path, "n1", ended_by="deadline"))
    result = judged.known()
    assert result is not None
    assert (result["released"], result["judgement"]["reasons"]) == (False, ["cut_training"])
    assert champion_of(tmp_path) == ""


def test_evaluations_of_other_models_than_those_of_now_release_nothing(tmp_path: Path) -> None:
    """Another night was released while the task was deferred: the next run judges beside that."""
    slow = Judged(promoted(tmp_path, "n1", 0.6), trained(tmp_path, "n1"))
    end = evaluated(slow.operator._run(slow.context))
    Judged(promoted(tmp_path, "n2", 0.5), trained(tmp_path, "n2", 0.05)).ended()
    slow.operator.prepared = None  # another process finishes it
    result = work.Try(slow.operator, slow.context).finish(end)
    assert (result["released"], result["judgement"]["reasons"]) == (False, ["outdated"])
    assert champion_of(tmp_path) == "n2"
    assert slow.known() is None, "judged again"


def test_what_was_not_promoted_or_not_trained_is_not_judged(tmp_path: Path) -> None:
    refused = promoted(tmp_path, "n1") | {"promoted": False}
    with pytest.raises(AirflowSkipException, match="judgement skipped: promoted: "):
        Judged(refused, None).known()
    with pytest.raises(SpecError, match="trained: is empty"):
        Judged(promoted(tmp_path, "n2"), None).known()


def test_lineage_goes_from_the_model_to_the_champion_once_it_is_released(tmp_path: Path) -> None:
    outcome = promoted(tmp_path, "n1")
    assert of_gate(outcome).outputs == (), "the gate promotes nothing by itself"
    result = Judged(outcome, trained(tmp_path, "n1")).ended()
    lineage = of_gate(result)
    assert [each.uri for each in lineage.outputs] == [f"{tmp_path}/champions/flights/auc.max"]
    assert result["model_uri"] in [each.uri for each in lineage.inputs]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metric": "auc", "mode": "max"}, r"judge\.evaluate: is required"),
        (JUDGE | {"at_leest": 0.7}, r"judge\.at_leest: unknown field 'at_leest'; did you mean 'at_least'"),
        (JUDGE | {"mode": "best"}, r"judge\.mode"),
        (None, "judge"),
    ],
)
def test_a_wrong_judge_is_refused_where_the_dag_is_read(given: Any, said: str) -> None:
    with DAG("d", schedule=None), pytest.raises(SpecError, match=said):
        JudgeOperator(task_id="judge", spec=SPEC, outcome={}, trained={}, judge=given)


def dag_with_a_judge(*, approval: Any = None) -> Any:
    with DAG("d", schedule=None) as dag:
        sweep = SweepOperator(task_id="sweep", spec=SPEC)
        gate = GateOperator(task_id="gate", spec=SPEC, outcome=sweep.output, approval=approval)
        train = TrainOperator(task_id="train", spec=TRAIN, outcome=gate.output)
        judge = JudgeOperator(
            task_id="judge", spec=SPEC, outcome=gate.output, trained=train.output, judge=JUDGE
        )
        approve = ApproveOperator(task_id="approve", outcome=judge.output)
        SweepOperator(task_id="deploy", spec=SPEC) << approve
    return dag


def asked(dag: Any, storage: Path, key: str = "n1") -> Any:
    """The gate of that DAG, whose sweep has ended, and which has run once."""
    gate, spec = dag.get_task("gate"), make_spec(storage)
    gate.gate, gate.spec = {"confirm_top_k": 1, "seeds": 2, "test": "mean"}, spec.to_dict()
    gate.outcome = brief(stored(spec, swept(key, 0.5)))
    run = gate._gate({"dag": dag})
    run.settle(gave(run, *(config["x"] for _ in range(2) for config in configs(run))))
    return gate


def test_a_gate_leaves_the_release_to_the_nearest_judge_behind_it(tmp_path: Path) -> None:
    gate = asked(dag_with_a_judge(), tmp_path)
    assert gate._gate({"dag": gate.dag}).verdict is not None
    from raysweep_airflow.upstream import is_judged

    assert is_judged(gate)
    with DAG("e", schedule=None) as dag:
        first = GateOperator(task_id="first", spec=SPEC, outcome={})
        sweep = SweepOperator(task_id="sweep", spec=SPEC)
        first >> sweep
        second = GateOperator(task_id="second", spec=SPEC, outcome=sweep.output)
        approve = ApproveOperator(task_id="approve", outcome=second.output)
        train = TrainOperator(task_id="train", spec=TRAIN, outcome=approve.output)
        JudgeOperator.partial(task_id="judge", spec=SPEC, outcome=approve.output, judge=JUDGE).expand(
            trained=[train.output]
        )
    assert [is_judged(dag.get_task(name)) for name in ("first", "second")] == [False, True]


def test_an_approval_after_the_judge_goes_to_the_judge(tmp_path: Path) -> None:
    gate = asked(dag_with_a_judge(approval=ASKED), tmp_path)
    result = gate.known({"dag": gate.dag})
    assert (result["promoted"], result["gate"].get("approval")) == (True, None)
    stored_night = read_champion(open_store(tmp_path), LINE).night("n1", result["gate"]["gate_id"])
    assert stored_night is not None
    assert stored_night.to_approve == ASKED


ALONE = """
from airflow.sdk import DAG
from raysweep_airflow import GateOperator, SweepOperator, TrainOperator

SPEC = {spec}
with DAG("alone", schedule=None):
    sweep = SweepOperator(task_id="sweep", spec=SPEC)
    gate = GateOperator(task_id="gate", spec=SPEC, outcome=sweep.output, approval={approval})
    TrainOperator(task_id="train", spec={{"trainable": "m:f", "name": "t"}}, outcome=gate.output)
"""


def test_an_approval_after_a_judge_that_the_dag_does_not_have_is_an_import_error(tmp_path: Path) -> None:
    for name, approval in (("after", {"after": "judge"}), ("plain", "required")):
        (tmp_path / f"{name}.py").write_text(ALONE.format(spec=SPEC, approval=repr(approval)))
    bag = DagBag(str(tmp_path), load_op_links=False)
    assert list(bag.dags) == ["alone"]
    [(name, error)] = bag.import_errors.items()
    assert Path(name).name == "after.py"
    assert "approval.after: requires a judge; add judge, or write after: gate" in error


def test_an_approval_after_a_judge_by_a_template_is_refused_by_the_gate(tmp_path: Path) -> None:
    with DAG("d", schedule=None) as dag:
        gate = GateOperator(task_id="gate", spec=SPEC, outcome={}, approval={"after": "{{ params.after }}"})
    dag.resolve_template_files()
    gate.approval, gate.outcome = {"after": "judge"}, brief(stored(make_spec(tmp_path), swept("n1", 0.5)))
    with pytest.raises(SpecError, match=r"approval\.after: requires a judge"):
        gate.known({"dag": dag})


@pytest.mark.parametrize("approved", [True, False])
def test_a_model_that_passed_waits_for_a_person_who_sees_its_figures(
    approved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **fields: forms.append(fields))
    Judged(promoted(tmp_path, "n1"), trained(tmp_path, "n1")).ended()
    judged = Judged(promoted(tmp_path, "n2", 0.7, ASKED), trained(tmp_path, "n2", 0.01))
    result = judged.ended()
    assert (result["released"], champion_of(tmp_path)) == (False, "n1")
    assert judged.event.extra is None
    assert "waits for approval until" in result["why"]

    dag = dag_with_a_judge(approval=ASKED)
    approve = dag.get_task("approve")
    approve.outcome = result
    context = {"ti": judged.ti, "task_instance": judged.ti, "task_state_store": Store(), "outlet_events": {}}
    with pytest.raises(TaskAwaitingInput):
        approve.execute(context | {"task": approve})
    [form] = forms
    assert form["subject"] == "Release the model of flights@n2?"
    assert "| auc | new model | released model | better by |" in form["body"]
    assert "0.71" in form["body"]
    assert "[Judge](" in form["body"]

    candidate = find_candidate(result)
    assert candidate is not None
    candidate.decide(Decision(approved=approved, by="ann", at=time.time()))
    if approved:
        told = approve.execute(context | {"task": approve})
        assert (told["released"], champion_of(tmp_path)) == (True, "n2")
        assert "approved by ann" in told["judgement"]["why"]
        return
    with pytest.raises(DownstreamTasksSkipped) as raised:
        approve.execute(context | {"task": approve})
    assert raised.value.tasks == ["deploy"]
    told = judged.ti.pushed["return_value"]
    assert (told["released"], champion_of(tmp_path)) == (False, "n1")
    assert "rejected by ann" in told["why"]


FORGED: dict[str, Any] = {"released": True, "judgement": None, "approval": None, "promoted": True}


@pytest.mark.parametrize("forged", [FORGED, FORGED | {"judgement": {"approval": None, "verdict": "passed"}}])
def test_what_other_tasks_hand_on_skips_no_approval(
    forged: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requirement is in the line of champions, and the model waits there."""
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **fields: None)
    outcome = promoted(tmp_path, "n1", 0.5, ASKED)
    judged = Judged(outcome | forged, trained(tmp_path, "n1"))
    assert judged.ended()["released"] is False
    approve = dag_with_a_judge(approval=ASKED).get_task("approve")
    approve.outcome = outcome | forged
    context = {"ti": judged.ti, "task_instance": judged.ti, "task_state_store": Store(), "outlet_events": {}}
    with pytest.raises(TaskAwaitingInput):
        approve.execute(context | {"task": approve})
    assert champion_of(tmp_path) == ""
    for lost in (None, {}):
        approve.outcome = lost
        with pytest.raises(AirflowFailException, match="does not say where the sweep is stored"):
            approve.execute(context | {"task": approve})


def test_a_gates_brief_without_its_approval_waits_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **fields: None)
    outcome = promoted(tmp_path, "n1", 0.5, ApprovalSpec(timeout=3600.0))
    with DAG("d", schedule=None):
        approve = ApproveOperator(task_id="approve", outcome={})
    approve.outcome = outcome | {"promoted": True, "gate": outcome["gate"] | {"approval": None}}
    ti = Ti()
    context = {"ti": ti, "task_instance": ti, "task_state_store": Store(), "outlet_events": {}}
    with pytest.raises(TaskAwaitingInput):
        approve.execute(context | {"task": approve})


def test_behind_a_judge_that_released_nothing_the_tasks_downstream_are_skipped(tmp_path: Path) -> None:
    result = Judged(promoted(tmp_path, "n1"), trained(tmp_path, "n1", ended_by="deadline")).known()
    dag = dag_with_a_judge()
    approve = dag.get_task("approve")
    approve.outcome = result
    ti = Ti()
    with pytest.raises(DownstreamTasksSkipped):
        approve.execute({"ti": ti, "task_instance": ti, "task_state_store": Store(), "task": approve})
    assert ti.pushed["return_value"]["released"] is False
