"""Reports: all of them, in order, as numbers; and what `wait` promises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import TrialReported
from raysweep.errors import SpecChangedError
from tests.engine.conftest import INLINE

pytestmark = pytest.mark.here
Run = Callable[..., rs.SweepOutcome]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_ten_thousand_reports_arrive_in_order(
    isolation: str, run: Run, events: Events, lines: Lines, record_property: Callable[..., None]
) -> None:
    outcome = run("many_reports", {"reports": 10_000}, isolation=isolation)
    (trial,) = outcome.trials
    assert (trial.state, trial.reports, trial.overrun_reports) == ("completed", 10_000, 0)
    assert trial.metrics == {"loss": 1 / 10_000, "step": 9999, "training_iteration": 10_000}
    batches = events(TrialReported)
    steps = [row[batch.keys.index("step")] for batch in batches for row in batch.rows]
    assert steps == list(range(10_000))
    assert [batch.first for batch in batches] == [
        sum(len(earlier.rows) for earlier in batches[:index]) for index in range(len(batches))
    ]
    took_s = float(lines()[-1][1])
    record_property("us_a_report", took_s * 100)
    assert took_s < 30


def test_numpy_and_odd_values_become_json(run: Run) -> None:
    (trial,) = run("kinds_of_values").trials
    assert trial.state == "completed", trial.error
    assert trial.metrics == {
        "loss": 0.5,
        "int": 7,
        "flag": True,
        "array": [0, 1, 2],
        "zero_d": 2.5,
        "huge": float(2**80),
        "long": 2**64 - 1,
        "text": "é",
        "nothing": None,
        "nested": {"a": [1, 2.5, "b"]},
        "training_iteration": 1,
    }


def test_what_is_no_metric_fails_its_trial_and_says_so(run: Run) -> None:
    kinds = ["one", "nan", "inf", "object", "surrogate"]
    outcome = run("reports_value", {"kind": {"grid_search": kinds}}, failure={"max_failures": 0}, **INLINE)
    _, nan, inf, object_, surrogate = outcome.trials
    for trial in (nan, inf):
        assert trial.state == "failed"
        assert trial.error is not None
        assert trial.error.kind == "non_finite"
    for trial in (object_, surrogate):
        assert trial.state == "failed"
        assert trial.error is not None
        assert trial.error.kind == "user_error"
        assert "'loss' was reported as '" in trial.error.message
        assert "it must be a number" in trial.error.message
    notes = [note for note in outcome.notes if "kept as text" in note]
    assert sorted(note.rpartition(" ")[2] for note in notes) == ["object", "str"]


def test_non_finite_metrics_may_be_ignored(run: Run) -> None:
    kinds = ["nan", "inf"]
    outcome = run(
        "reports_value", {"kind": {"grid_search": kinds}}, failure={"non_finite": "ignore"}, **INLINE
    )
    for trial in outcome.trials:
        assert (trial.state, trial.score, trial.reports) == ("completed", 0.25, 2)


def test_a_waiting_report_returns_when_it_is_durable(run: Run, lines: Lines, storage: Any) -> None:
    outcome = run("waits", {"storage": str(storage)}, num_samples=2)
    assert outcome.counts == {"completed": 2}, outcome.trials[0].error
    seen = [(int(step), int(rows)) for _, step, rows, _ in lines()]
    assert len(seen) == 6
    assert all(rows == step + 1 for step, rows in seen)


def test_a_returned_dict_is_one_report_and_other_values_are_refused(run: Run) -> None:
    (trial,) = run("noop", **INLINE).trials
    assert (trial.reports, trial.metrics["loss"]) == (1, trial.config["x"])
    with pytest.raises(SpecChangedError, match="trainable"):
        run("returns_nonsense", **INLINE)
    (trial,) = run("returns_nonsense", name="nonsense", failure={"max_failures": 0}, **INLINE).trials
    assert trial.error is not None
    assert "returned a list" in trial.error.message


def test_a_finished_trial_never_fails_for_what_it_returns(run: Run) -> None:
    grid = {"result": {"grid_search": ["model", 7.5, "done"]}}
    outcome = run("reports_then_returns", grid, name="returns", failure={"max_failures": 0}, **INLINE)
    assert [trial.state for trial in outcome.trials] == ["completed"] * 3, outcome.trials[0].error
    assert [trial.metrics["loss"] for trial in outcome.trials] == [0.5, 7.5, 0.5]
    texts = [note.partition(": ")[2] for note in outcome.notes]
    assert texts.count("metric 'model' is kept as text, since JSON cannot hold a value of type object") == 1
    ignored = [text for text in texts if "which is ignored" in text]
    assert [text.split(",")[0] for text in ignored] == [
        "the trainable returned a Model", "the trainable returned a str",
    ]  # fmt: skip
    (trial,) = run("returns_odd_names", name="names", failure={"max_failures": 0}, **INLINE).trials
    kept = {"loss": 0.5, "1": "one", "blob": "b'x'", "tags": [3], "training_iteration": 1}
    assert trial.metrics == kept


def test_outside_a_trial_the_api_says_so() -> None:
    with pytest.raises(rs.RaysweepError, match="only inside a trial"):
        rs.report({"loss": 1.0})
    with pytest.raises(rs.RaysweepError, match="only inside a trial"):
        rs.get_checkpoint()
    with pytest.raises(rs.RaysweepError, match="only inside a trial"):
        rs.get_context()


def test_reports_past_the_end_are_counted_and_used_for_nothing(run: Run) -> None:
    outcome = run("many_reports", {"reports": 5_000}, stop={"trial": {"training_iteration": 100}})
    (trial,) = outcome.trials
    assert trial.state == "completed"
    assert trial.metrics["step"] == 99
    assert trial.reports == 100
    assert trial.overrun_reports > 0
    assert math.isclose(trial.score or 0, 1 / 100)
