"""The pipeline waits for a decision, without Ray, and continues by it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import Decision, GateOutcome, SweepOutcome
from raysweep.pipeline import night as night_module
from raysweep.pipeline import run_pipeline
from raysweep.pipeline.approval import await_approval
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Line
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.pipeline import GateSpec, PipelineSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.pipeline.gates import make_spec, night, swept

LINE = Line(name="flights", metric="auc", mode="max")
GATE = GateSpec(confirm_top_k=1, min_improvement=0.02)


def wait(storage: Path, verdict: GateOutcome) -> tuple[GateOutcome, list[str]]:
    said: list[str] = []
    found = await_approval(
        make_spec(storage), swept("n1", 0.5), GATE, verdict, on_wait=said.append, poll_s=0.01
    )
    return found, said


def test_it_waits_until_a_person_decides(tmp_path: Path) -> None:
    verdict = night(tmp_path, "n1", 0.5, approval=ApprovalSpec(timeout=3600))
    asked = Decision(approved=True, by="ann", at=time.time())
    later = threading.Timer(
        0.2, lambda: decide_night(open_store(tmp_path), LINE, "n1", verdict.gate_id, asked)
    )
    later.start()
    found, [said] = wait(tmp_path, verdict)
    later.join()
    assert (found.promoted, found.is_waiting) == (True, False)
    assert f"raysweep approve flights@n1 --storage {tmp_path} (or --reject)" in said
    assert "passed: auc 0.501" in said


def test_it_ends_by_silence(tmp_path: Path) -> None:
    verdict = night(tmp_path, "n1", 0.5, approval=ApprovalSpec(timeout=0.2))
    found, _ = wait(tmp_path, verdict)
    assert found.approval is not None
    assert found.approval.decision is not None
    assert (found.promoted, found.approval.decision.by) == (False, "silence")
    assert found.why.startswith("not promoted: auc 0.501")


def test_a_verdict_that_needs_none_is_not_waited_for(tmp_path: Path) -> None:
    assert wait(tmp_path, night(tmp_path, "n1", 0.5))[1] == []


@pytest.mark.parametrize("approved", [True, False])
def test_a_pipeline_waits_with_no_ray_and_trains_what_is_approved(
    approved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    given = swept("n1", 0.5)

    class Ray:
        def __enter__(self) -> None:
            steps.append("ray")

        def __exit__(self, *_: object) -> None:
            steps.append("no ray")

    def gate(*_: object, approval: ApprovalSpec, **__: object) -> GateOutcome:
        steps.append("gate")
        return night(tmp_path, "n1", 0.5, approval=approval)

    def waited(*parts: Any) -> GateOutcome:
        steps.append("wait")
        verdict: GateOutcome = parts[-1]
        decide_night(
            open_store(tmp_path),
            LINE,
            "n1",
            verdict.gate_id,
            Decision(approved=approved, by="ann", at=time.time()),
        )
        return await_approval(*parts, on_wait=lambda _: None)

    def trained(_: object, outcome: SweepOutcome, **__: object) -> None:
        steps.append(f"train {outcome.promoted}")

    monkeypatch.setattr(night_module, "_one_ray", lambda _: Ray())
    monkeypatch.setattr(night_module, "run_sweep", lambda *_, **__: given)
    monkeypatch.setattr(night_module, "run_gate", gate)
    monkeypatch.setattr(night_module, "await_approval", waited)
    monkeypatch.setattr(night_module, "train_best", trained)
    train = {"name": "full", "trainable": "m:f", "storage_path": str(tmp_path)}
    pipeline = {
        "sweep": make_spec(tmp_path).to_dict(),
        "gate": {"confirm_top_k": 1, "min_improvement": 0.02},
        "approval": "required",
        "train": train,
    }
    night_outcome = run_pipeline(pipeline, key="n1")
    assert steps == ["ray", "gate", "no ray", "wait", "ray", f"train {approved}", "no ray"]
    assert bool(night_outcome.skipped) is not approved
    assert approved or "rejected by ann" in night_outcome.skipped


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("required", (43_200.0, "reject")),
        ({"timeout": "4h"}, (14_400.0, "reject")),
        ({"timeout": "90 min", "on_silence": "promote"}, (5_400.0, "promote")),
        ({"timeout": 30}, (30.0, "reject")),
    ],
)
def test_how_an_approval_is_written(given: Any, wanted: tuple[float, str], tmp_path: Path) -> None:
    spec = PipelineSpec.model_validate({"sweep": make_spec(tmp_path), "gate": {}, "approval": given})
    assert spec.approval is not None
    assert (spec.approval.timeout, spec.approval.on_silence) == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("maybe", "approval: 'maybe' is not an approval; write required"),
        ({"timeout": "soon"}, "approval.timeout: 'soon' is not a duration; write one such as 4h"),
        ({"timeout": 0}, "approval.timeout"),
        ({"on_silence": "train"}, "approval.on_silence"),
    ],
)
def test_what_is_no_approval_is_refused(given: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=said.replace("(", r"\(")):
        PipelineSpec.model_validate({"sweep": make_spec(tmp_path), "gate": {}, "approval": given})


def test_an_approval_needs_a_gate(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="approval: requires a gate"):
        PipelineSpec.model_validate({"sweep": make_spec(tmp_path), "approval": "required"})
