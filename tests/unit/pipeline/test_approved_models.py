"""An approval after the judgement: the gate writes down that the model needs it, and nothing else counts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import Decision
from raysweep.pipeline import JudgeRun, is_released, prepare_gate, prepare_judge
from raysweep.pipeline.candidate import find_candidate
from raysweep.runs.across_runs.champions import Line, Night, read_champion
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.pipeline.gates import GATE, make_spec, stored, swept
from tests.unit.pipeline.judgements import JUDGE, evaluated, promoted, trained

AFTER = ApprovalSpec(after="judge", timeout=3600.0)


def judged(storage: Path, *, gate: ApprovalSpec | None, judge: ApprovalSpec | None = None) -> Night:
    """The night, once its model has passed the judgement."""
    run: JudgeRun = prepare_judge(
        JUDGE, promoted(storage, "n1", approval=gate), trained(storage, "n1"), approval=judge
    )
    assert run.settle(evaluated(run)).is_passed
    line = Line(name="flights", metric="auc", mode="max")
    [night] = read_champion(open_store(storage), line).history
    return night


def test_the_model_waits_where_the_gate_asked_for_it(tmp_path: Path) -> None:
    night = judged(tmp_path, gate=AFTER)
    assert (night.promoted, night.is_waiting, night.has_released) == (True, True, False)
    brief = promoted(tmp_path, "n1")
    candidate = find_candidate(brief, is_judged=True)
    assert candidate is not None
    candidate.decide(Decision(approved=True, by="ann", at=time.time()))
    assert is_released(brief)


@pytest.mark.parametrize("asked", [AFTER, None])
def test_a_judge_may_ask_for_more_than_the_gate_and_never_for_less(
    tmp_path: Path, asked: ApprovalSpec | None
) -> None:
    assert judged(tmp_path, gate=None, judge=asked).is_waiting is (asked is not None)


def test_a_gate_without_a_judge_behind_it_refuses_an_approval_after_one(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    with pytest.raises(SpecError, match=r"approval\.after: requires a judge; add judge, or write"):
        prepare_gate(spec, stored(spec, swept("n1", 0.5)), GATE, AFTER)
