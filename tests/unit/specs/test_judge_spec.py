"""The judge of a pipeline: each bad input is one line."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.specs.approval import read_approval
from raysweep.specs.judge import JudgeSpec
from raysweep.specs.pipeline import PipelineSpec

JUDGE = {"evaluate": "churn.judge:score", "metric": "auc", "mode": "max"}
SWEEP = {"name": "s", "trainable": "m:f", "param_space": {"x": 1}, "metric": "auc", "mode": "max"}
NIGHT = {"sweep": SWEEP, "gate": {}, "train": {"trainable": "m:g"}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"evaluate": "score"}, "evaluate: 'score' names no module"),
        ({"evaluate": "judge.py"}, "evaluate: 'judge.py' is a file's path, not an import path"),
        ({"mode": "best"}, "mode: "),
        ({"metric": ""}, "metric: "),
        ({"min_improvement": -1}, "min_improvement: "),
        ({"at_least": float("nan")}, "at_least: "),
        ({"worst_slice": -0.1}, "worst_slice: "),
        ({"slices": ["a", "a"]}, "slices: has 'a' twice"),
        ({"slices": ["all"]}, "slices: 'all' is the whole, not a slice"),
        ({"slices": "a"}, "slices: "),
        ({"retries": -1}, "retries: "),
        ({"resources": {"cpu": -1}}, "resources.cpu: "),
        ({"threshold": 0.7}, "threshold: "),
    ],
)
def test_a_bad_field_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        JudgeSpec.model_validate({**JUDGE, **given})
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("night", "said"),
    [
        ({**NIGHT, "gate": None}, "judge: requires gate"),
        ({**NIGHT, "train": None}, "judge: requires train"),
    ],
)
def test_a_judge_needs_a_gate_and_a_training(night: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        PipelineSpec.model_validate({**night, "judge": JUDGE})


def test_an_approval_stands_before_the_training_or_after_the_judge() -> None:
    after = PipelineSpec.model_validate({**NIGHT, "judge": JUDGE, "approval": {"after": "judge"}})
    assert after.judge_approval is not None
    before = PipelineSpec.model_validate({**NIGHT, "judge": JUDGE, "approval": "required"})
    assert before.judge_approval is None
    with pytest.raises(SpecError, match=r"approval\.after: requires a judge"):
        PipelineSpec.model_validate({**NIGHT, "approval": {"after": "judge"}})


def test_an_approval_after_the_judge_requires_one_behind_the_step() -> None:
    with pytest.raises(SpecError, match=r"approval\.after: requires a judge"):
        read_approval({"after": "judge"})
    assert read_approval("required") is not None
    after = read_approval({"after": "judge"}, has_judge=True)
    assert after is not None
    assert after.after == "judge"


def test_a_pipeline_with_a_judge_is_written_and_read() -> None:
    spec = PipelineSpec.model_validate({**NIGHT, "judge": {**JUDGE, "slices": ["a"]}})
    assert PipelineSpec.from_any(spec.to_dict()) == spec
    assert "judge" not in PipelineSpec.model_validate(NIGHT).to_dict()
