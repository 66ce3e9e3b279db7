"""A trainable tried out in this process."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raysweep as rs
from raysweep.errors import RaysweepError
from raysweep.testing import FaultPlan, run_trial


def train(config: dict[str, Any]) -> None:
    """Five steps with a checkpoint at each."""
    step = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            step = json.loads((folder / "at.json").read_text())
    while step < 5:
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at.json").write_text(json.dumps(step))
            rs.report({"loss": config["x"] / step, "step": step}, checkpoint=folder, wait=step == 2)


def test_reports_are_what_a_sweep_would_see() -> None:
    (attempt,) = run_trial(train, {"x": 2.0})
    assert attempt.end == "returned"
    assert attempt.reports[-1] == {"loss": 0.4, "step": 5}
    assert attempt.checkpoints == (0, 1, 2, 3, 4)
    (attempt,) = run_trial(lambda config: {"loss": float("nan")}, {})
    assert attempt.reports == ({"loss": "NaN"},)


def test_a_retry_goes_on_from_the_newest_checkpoint(tmp_path: Path) -> None:
    plan = FaultPlan(str(tmp_path)).fail_at(step=3).fail_at(step=5, error=ValueError("late"))
    with plan.active():
        attempts = run_trial(train, {"x": 2.0}, max_failures=2)
    plan.assert_fired()
    assert [attempt.resumed_from for attempt in attempts] == [0, 2, 4]
    assert [[row["step"] for row in attempt.reports] for attempt in attempts] == [[1, 2], [3, 4], [5]]
    assert [attempt.end for attempt in attempts] == ["failed", "failed", "returned"]
    assert attempts[1].error is not None
    assert attempts[1].error["message"] == "late"


def test_a_trial_that_is_told_to_stop_stops() -> None:
    (attempt,) = run_trial(train, {"x": 2.0}, stop_at=3)
    assert attempt.end == "stopped"
    assert len(attempt.reports) == 3


def test_an_error_is_told_not_raised() -> None:
    (attempt,) = run_trial(lambda config: config["y"], {})
    assert attempt.error is not None
    assert attempt.error["type"] == "KeyError"
    (attempt,) = run_trial(lambda config: [1], {})
    assert attempt.error is not None
    assert "return a dict of metrics" in attempt.error["message"]
    with pytest.raises(RaysweepError, match="only inside a trial"):
        rs.report({"loss": 1})


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), np.array(0.5), True, "0.5", [0.5], np.array([0.5])], ids=repr
)
def test_a_number_that_is_returned_is_the_metric(value: Any) -> None:
    (attempt,) = run_trial(lambda config: value, {}, metric="loss")
    if isinstance(value, float | np.floating) or (isinstance(value, np.ndarray) and value.shape == ()):
        assert (attempt.end, attempt.reports) == ("returned", ({"loss": 0.5},))
        return
    assert attempt.error is not None
    message = attempt.error["message"]
    assert message.startswith(f"the trainable returned a {type(value).__name__}: return a dict of metrics")
    assert "the number that 'loss' is to be" in message


def test_a_report_without_names_says_how_to_write_it() -> None:
    (attempt,) = run_trial(lambda config: rs.report(3.0), {})  # type: ignore[arg-type]
    assert attempt.error is not None
    assert attempt.error["message"] == (
        'report() takes metrics by name, got a float: write report({"loss": 3.0}) with the name of the metric'
    )


def hand_over(config: dict[str, Any]) -> None:
    """As `train`, with folders that are handed over."""
    step = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            step = json.loads((folder / "at.json").read_text())
    while step < 5:
        step += 1
        with rs.new_checkpoint() as folder:
            (folder / "at.json").write_text(json.dumps(step))
            rs.report({"loss": config["x"] / step, "step": step}, checkpoint=folder)


def test_what_is_handed_over_is_there_for_a_retry(tmp_path: Path) -> None:
    """All that the attempt reported is stored before its failure is said."""
    plan = FaultPlan(str(tmp_path)).fail_at(step=3).fail_at(step=5)
    with plan.active():
        attempts = run_trial(hand_over, {"x": 2.0}, max_failures=2)
    plan.assert_fired()
    assert [attempt.resumed_from for attempt in attempts] == [0, 2, 4]
    assert [attempt.checkpoints for attempt in attempts] == [(0, 1), (2, 3), (4,)]
    assert attempts[-1].end == "returned"


def test_a_fault_at_a_checkpoint_meets_one_that_is_handed_over(tmp_path: Path) -> None:
    plan = FaultPlan(str(tmp_path)).delay_at("checkpoint", 0.05, step=2)
    with plan.active():
        (attempt,) = run_trial(hand_over, {"x": 2.0})
    plan.assert_fired()
    assert attempt.checkpoints == (0, 1, 2, 3, 4)
