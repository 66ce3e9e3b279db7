"""Events of champions without a server: what is told of a verdict, once; and limits that tasks pass on."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.states import State

import raysweep as rs
from raysweep.outcome import Decision
from raysweep.pipeline import prepare_gate, prepare_judge, with_gate
from raysweep.pipeline.candidate import find_candidate
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.pipeline import GateSpec
from raysweep.step import Step
from raysweep_prefect import signals
from raysweep_prefect.flows import nightly_sweep
from raysweep_prefect.tasks import train
from tests.prefect.desk import store_training
from tests.unit.pipeline.gates import configs, gave, make_spec, stored, swept
from tests.unit.pipeline.gates import night as gated
from tests.unit.pipeline.judgements import JUDGE, evaluated, promoted, trained

GATE = GateSpec(confirm_top_k=1, seeds=2, test="mean")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The events, in place of Prefect's client, which sends none without a server."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(signals, "emit_event", lambda **event: found.append(event))
    return found


def judged(storage: Path, key: str, score: float, approval: ApprovalSpec | None = None) -> rs.SweepOutcome:
    """A sweep with the verdict of its gate."""
    spec = make_spec(storage)
    outcome = stored(spec, swept(key, score))
    prepared = prepare_gate(spec, outcome, GATE, approval)
    verdict = prepared.verdict or prepared.settle(
        gave(prepared, *(config["x"] for _ in range(2) for config in configs(prepared)))
    )
    return with_gate(outcome, verdict)


def names(sent: list[dict[str, Any]]) -> list[str]:
    return [event["event"].removeprefix("raysweep.champion.") for event in sent]


def roles(event: dict[str, Any]) -> dict[str, str]:
    return {each["prefect.resource.role"]: each["prefect.resource.id"] for each in event["related"]}


def test_each_verdict_has_its_event_with_what_it_is_about(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    for key, score in (("n1", 0.5), ("n2", 0.9), ("n3", 0.1)):
        signals.tell_verdict(make_spec(tmp_path), judged(tmp_path, key, score), GATE)
    assert names(sent) == ["promoted", "promoted", "rejected"]
    first, second, third = sent
    assert first["resource"]["prefect.resource.id"] == "raysweep.champion.flights"
    assert roles(first).keys() == {"sweep", "gate"}
    assert roles(second)["sweep"] == "raysweep.sweep.n2"
    assert roles(second)["replaced"] == roles(third)["replaced"].replace("n2", "n1") == "raysweep.sweep.n1"
    assert second["payload"]["best"]["config"] == {"x": 0.9}
    assert third["payload"]["gate"]["why"].startswith("not promoted: ")


def test_an_approval_is_told_once_whoever_asks(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    spec = make_spec(tmp_path)
    waiting = judged(tmp_path, "n1", 0.5, ApprovalSpec(timeout=3600))
    signals.tell_verdict(spec, waiting, GATE)
    assert waiting.gate is not None
    for approved, wanted in ((True, ["approved", "promoted"]), (False, ["rejected"])):
        decision = Decision(approved=approved, by="ann", at=5.0)
        decided = with_gate(waiting, waiting.gate.told(decision))
        for _ in range(2):
            signals.tell_verdict(spec, decided, GATE)
        again = [event for event in sent if event["event"].rpartition(".")[2] in wanted]
        assert names(again) == wanted * 2
        assert len({event["id"] for event in again}) == len(wanted), "the server keeps each id once"
    assert names(sent)[0] == "proposed"


def test_a_config_that_is_to_be_judged_is_promoted_by_the_release_of_its_model_alone(
    tmp_path: Path, sent: list[dict[str, Any]]
) -> None:
    def night(
        key: str, score: float, gain: float, approval: ApprovalSpec | None = None, *, fails: bool = False
    ) -> dict[str, Any]:
        brief = promoted(tmp_path, key, score, approval)
        run = prepare_judge(JUDGE, brief, trained(tmp_path, key, gain))
        verdict = gated(tmp_path, key, score, is_judged=True)
        outcome = with_gate(run.outcome, verdict)
        signals.tell_verdict(make_spec(tmp_path), outcome, GATE, is_judged=True)
        run.settle(evaluated(run, fails=fails))
        told = signals.named_night(brief)
        for _ in range(2):
            signals.tell_judgement(run.line, told)
        return told

    night("n1", 0.5, 0.0)
    assert names(sent) == ["proposed", "promoted", "promoted"]
    first, second = sent[1:]
    assert first["id"] == second["id"], "the server keeps it once"
    assert roles(first).keys() == {"sweep", "gate", "judge"}
    assert first["payload"]["judgement"]["verdict"] == "passed"
    sent.clear()
    night("n2", 0.6, -0.1)
    assert names(sent) == ["proposed", "rejected", "rejected"]
    assert sent[1]["payload"]["released"] is False
    sent.clear()
    night("n2b", 0.65, 0.1, fails=True)
    assert names(sent) == ["proposed", "undecided", "undecided"]
    assert sent[1]["payload"]["judgement"]["verdict"] == "undecided"
    sent.clear()
    waiting = night("n3", 0.7, 0.1, ApprovalSpec(after="judge", timeout=3600.0))
    assert names(sent) == ["proposed", "proposed", "proposed"]
    assert len({event["id"] for event in sent}) == 2, "by the gate, and by the judge"
    sent.clear()
    candidate = find_candidate(waiting, is_judged=True)
    assert candidate is not None
    candidate.decide(Decision(approved=True, by="ann", at=time.time()))
    signals.tell_judgement(candidate.line, waiting)
    assert names(sent) == ["approved", "promoted"]


@pytest.mark.parametrize(
    ("hours", "took_s", "begun"), [(1, 60.0, True), (1, 7_200.0, False), (-1, 60.0, False)]
)
def test_a_training_ends_with_the_night_or_is_not_begun(
    hours: int, took_s: float, begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Step] = []
    ended_well = rs.TrainOutcome(run_id="full-1", name="full", status="completed", started_at=1, ended_at=2)

    def run_step(step: Step, **_: Any) -> rs.TrainOutcome:
        steps.append(step)
        return ended_well

    monkeypatch.setattr("raysweep_prefect.tasks.run_step", run_step)
    outcome = stored(make_spec(tmp_path), swept("n1", 0.5))
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=hours)
    spec = store_training(tmp_path, "before", took_s)
    ended = train.fn(spec, "n1", outcome, deadline=ends.isoformat())
    if begun:
        assert [step.request.spec.stop.deadline for step in steps] == [ends]
        return
    assert steps == []
    assert isinstance(ended, State)
    assert (ended.name, (ended.message or "").partition(":")[0]) == ("Skipped", "training not begun")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"deadline": "06:00 Europe/Berlin"}, "deadline: applies to gate and training"),
        ({"registry": "mlflow"}, "registry: requires a gate"),
        ({"approval": ApprovalSpec()}, "approval: requires a gate"),
        ({"gate_spec": GATE, "deadline": "06:00 Berln"}, "deadline: 'Berln' is not a time zone"),
        ({"gate_spec": GATE, "registry": "mlfow"}, "registry: 'mlfow' is"),
    ],
)
def test_the_flow_takes_what_a_pipeline_takes(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(rs.SpecError) as raised:
        nightly_sweep.fn(make_spec(tmp_path), **fields)
    assert str(raised.value).startswith(said)
