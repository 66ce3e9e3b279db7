"""Outcomes: JSON both ways, ranking, and what they refuse."""

from __future__ import annotations

import gc
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import RaysweepError, SpecError, SweepFailedError, TrainingFailedError
from raysweep.outcome import (
    AttemptOutcome,
    BestTrial,
    ConfigOutcome,
    ErrorInfo,
    Holder,
    PipelineOutcome,
    RunningTrial,
    SweepOutcome,
    SweepProgress,
    TrainOutcome,
    TrialOutcome,
    trial_row,
)
from raysweep.outcome.record import Record

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
METRICS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


def trial(number: int, score: float | None, **fields: Any) -> TrialOutcome:
    return TrialOutcome(trial_id=f"t{number}", number=number, state="completed", score=score, **fields)


def sweep(*trials: TrialOutcome, **fields: Any) -> SweepOutcome:
    given = {"status": "completed", "mode": "max", **fields}
    return SweepOutcome(
        sweep_id="s-0", name="s", metric="auc", trials=trials, started_at=1.0, ended_at=2.5, **given
    )


def progress(**fields: Any) -> SweepProgress:
    return SweepProgress(
        sweep_id="s-0",
        name="s",
        status="running",
        holder=Holder(host="h", pid=3, process_started_at=1.5, boot_id="b", user="me"),
        generation=2,
        at=5.0,
        started_at=1.0,
        metric="auc",
        mode="max",
        **fields,
    )


CONFIG = ConfigOutcome(number=0, config={}, state="completed", mean=1.0, completed=1, trials=(0,), best=0)


def same(one: Any, two: Any) -> bool:
    """Equal, with NaN equal to itself and 1 not equal to 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


TRACEBACK = """Traceback (most recent call last):
  File "/me/train.py", line 30, in fit
    x
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/me/train.py", line 12, in fit
    net.step(lr)
  File "/me/net.py", line 3, in step
    torch.add(1)
  File "/me/.venv/lib/python3.12/site-packages/torch/ops.py", line 99, in add
    raise ValueError
ValueError: bad rate
"""


HUNG = """Traceback (most recent call last):
  File "/me/train.py", line 7, in wait
    sleep()
  File "/src/engine/raysweep/worker/runner.py", line 43, in _on_interrupt
    raise TrialStopped
TrialStopped: hung
"""


@pytest.mark.parametrize(
    ("traceback", "where"),
    [
        (TRACEBACK, "/me/net.py:3 in step"),
        (
            'Traceback (most recent call last):\n  File "/x/site-packages/a.py", line 1, in f\n',
            "/x/site-packages/a.py:1 in f",
        ),
        (HUNG, "/me/train.py:7 in wait"),
        ("", ""),
        (None, ""),
    ],
)
def test_an_error_names_the_innermost_line_of_user_code(traceback: str | None, where: str) -> None:
    assert ErrorInfo(kind="user_error", traceback=traceback).where == where


def test_the_best_of_a_failed_sweep_raises_with_the_first_error() -> None:
    error = ErrorInfo(kind="user_error", type="ValueError", message="bad rate", traceback=TRACEBACK)
    failed = TrialOutcome(trial_id="00003", number=3, state="failed", error=error)
    outcome = sweep(trial(0, None), failed, status="failed", why="every trial failed", error=error)
    for whole in (outcome, SweepOutcome.from_json(outcome.to_json()), outcome.model_copy()):
        with pytest.raises(SweepFailedError, match=r"trial 00003: ValueError: bad rate.*net\.py:3 in step"):
            whole.best.config  # noqa: B018
        assert whole.found_best is None
        assert whole == outcome
        assert "best" in json.loads(whole.to_json())
    assert sweep(trial(0, None), status="cancelled").best is None
    scored = trial(1, 0.5)
    assert sweep(scored, failed, best=scored, status="failed").best == scored


@given(METRICS, st.none() | st.floats())
def test_metrics_survive_json_and_it_is_strict_json(metrics: dict[str, Any], score: float | None) -> None:
    outcome = sweep(trial(0, score, metrics=metrics, best_metrics=metrics))
    text = outcome.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = SweepOutcome.from_json(text)
    assert same(back[0].metrics, outcome[0].metrics)
    assert same(back[0].score, outcome[0].score)
    assert back.to_json() == text


def test_everything_survives_json() -> None:
    error = ErrorInfo(
        kind="user_error", type="ValueError", message="m", traceback="t" * 9000, traceback_uri="u"
    )
    assert len(error.traceback or "") == 4096
    attempt = AttemptOutcome(attempt=0, node="n", started_at=1.0, ended_at=2.0, end="failed", error=error)
    best = trial(1, 0.5, config={"a": [1]}, attempts=(attempt,), checkpoint_uri="c", error=error)
    outcome = sweep(
        trial(0, None), best, best=best, counts={"completed": 2}, seed=3, uri="/x", error=error, why="because"
    )
    assert SweepOutcome.from_json(outcome.to_json()) == outcome
    assert pickle.loads(pickle.dumps(outcome)) == outcome  # noqa: S301
    trained = TrainOutcome(
        run_id="r",
        name="n",
        status="completed",
        metrics={"auc": math.inf},
        started_at=1.0,
        ended_at=2.0,
        resumed=True,
    )
    assert TrainOutcome.from_json(trained.to_json()) == trained
    running = progress(
        best=BestTrial(trial_id="t1", score=0.5),
        running=(RunningTrial(trial_id="t2", number=2, iteration=4, score=0.1),),
        notes=("one",),
    )
    assert SweepProgress.from_json(running.to_json()) == running
    assert str(running.holder) == "process 3 of me on h"


def test_later_versions_may_add_fields_and_old_ones_may_lack_some() -> None:
    fields = json.loads(sweep(trial(0, 1.0)).to_json())
    fields["new_field"] = fields["trials"][0]["newer"] = 1
    for name in ("counts", "uri", "generation", "raysweep_version", "format_version"):
        del fields[name]
    assert SweepOutcome.from_json(json.dumps(fields)) == sweep(trial(0, 1.0))


def fields_of(record: Record) -> set[str]:
    return set(json.loads(record.to_json()))


@pytest.mark.parametrize("collects", [True, False])
def test_who_makes_records_leaves_the_collector_as_it_was(collects: bool) -> None:
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        text = sweep(trial(0, 1.0)).to_json()
        with pytest.raises(SpecError):
            SweepOutcome.from_json("{}")
        SweepOutcome.from_json(text)
        assert gc.isenabled() == collects
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "SweepOutcome: not valid JSON"),
        ("[]", "SweepOutcome: "),
        ("{}", "sweep_id: is required"),
        (sweep().to_json().replace("completed", "done"), "status: 'done' is not known here"),
    ],
)
def test_other_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        SweepOutcome.from_json(text)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("mode", "order"), [("max", [3, 0, 4, 1]), ("min", [1, 0, 4, 3])])
def test_top(mode: str, order: list[int]) -> None:
    trials = [trial(0, 2.0), trial(1, 1.0), trial(2, None), trial(3, 3.0), trial(4, 2.0), trial(5, math.nan)]
    outcome = sweep(*trials, mode=mode)
    assert [one.number for one in outcome.top(10)] == order
    assert [one.number for one in outcome.top(2)] == order[:2]
    assert outcome.top(0) == outcome.top(-1) == ()
    assert sweep(trial(0, 2.0), trial(1, 9.0).model_copy(update={"state": "failed"})).top(2) == (
        trial(0, 2.0),
    )


def test_an_outcome_is_a_sequence_of_trials_and_always_true() -> None:
    outcome = sweep(trial(0, 1.0), trial(1, 2.0))
    assert len(outcome) == 2
    assert outcome[1].number == 1
    assert [one.number for one in outcome.trials] == [0, 1]
    assert sweep()


def test_raise_for_status() -> None:
    for status in ("completed", "deadline", "budget", "target", "plateau"):
        outcome = sweep(status=status)
        assert outcome.raise_for_status() is outcome
    for status in ("failed", "cancelled"):
        with pytest.raises(
            SweepFailedError, match=f"sweep 's-0' {status}: the\\(\\) reason; see /x"
        ) as caught:
            sweep(status=status, why="the()\nreason", uri="/x").raise_for_status()
        assert isinstance(caught.value.outcome, SweepOutcome)
    error = ErrorInfo(kind="user_error", message="bang")
    failed = TrainOutcome(run_id="r", name="n", status="failed", started_at=0, ended_at=1, error=error)
    with pytest.raises(TrainingFailedError, match=r"training 'r' failed: bang$"):
        failed.raise_for_status()
    assert issubclass(TrainingFailedError, RaysweepError)


def test_dataframe() -> None:
    frame = sweep(
        trial(0, 0.5, config={"a": {"b": 1}, "c": [1]}, metrics={"auc": 0.5, "score": 9}),
        trial(1, None, config={"a": {"b": 2}, "c": []}, error=ErrorInfo(kind="k", message="bang")),
    ).to_dataframe()
    assert list(frame["config/a/b"]) == [1, 2]
    assert list(frame["config/c"]) == [[1], []]
    assert frame["auc"][0] == 0.5
    assert (frame["score"][0], frame["metrics/score"][0]) == (0.5, 9)
    assert frame["error"][1] == "bang"
    assert len(sweep().to_dataframe()) == 0


def test_an_outcome_prints_as_a_few_lines_and_its_parts_as_one() -> None:
    trials = [
        trial(number, number / 10).model_copy(update={"config": {"x": list(range(50))}})
        for number in range(100)
    ]
    outcome = sweep(*trials, why="100 of 100 trials ended", uri="s3://b/s/s-0", notes=("one", "two", "three"))
    outcome = outcome.model_copy(update={"best": trials[-1]})
    assert str(outcome).splitlines() == [
        "s-0: completed",
        "100 of 100 trials ended",
        "best: trial t99, auc 9.9, config {'x': [" + ", ".join(map(str, range(50))) + "]}",
        "stored at s3://b/s/s-0",
        "note: one",
        "note: two",
        "and 1 more in notes",
    ]
    assert repr(outcome) == "<SweepOutcome s-0: completed, 100 trials>"
    assert "\n" not in repr(outcome.trials[3])
    assert len(repr(outcome.trials[3])) < 400
    assert repr(sweep(trial(0, None), status="failed")).startswith("<SweepOutcome")
    assert len(str(PipelineOutcome(sweep=outcome, skipped="not promoted"))) < 1000


def test_parameters_with_one_path_have_a_column_each() -> None:
    config = {"a/b": 1, "a": {"b": 2, "c": 3}, "d/e": 4}
    row = trial_row(trial(0, 1.0).model_copy(update={"config": config}))
    columns = {name: value for name, value in row.items() if name.startswith("config/")}
    assert columns == {"config/a\\/b": 1, "config/a/b": 2, "config/a/c": 3, "config/d/e": 4}
