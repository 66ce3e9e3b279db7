"""A name in the spec that no trial reports is told, once, with the one that was most likely meant."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from raysweep.core import SweepState
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import ASHA, Sweep, running

NAMED: dict[str, dict[str, Any]] = {
    "stop.trial": {"stop": {"trial": {"los": 2}}},
    "stop.trial_plateau.metric": {"stop": {"trial_plateau": {"metric": "los"}}},
    "checkpoint.keep_best.metric": {"checkpoint": {"keep_best": {"metric": "los", "mode": "min"}}},
    "search.gp.cost_attr": {"search": {"gp": {"cost_attr": "los"}}},
}


def report(sweep: Sweep, trial: int, **metrics: float) -> None:
    keys, row = tuple(metrics), list(metrics.values())
    first = sweep.state.trials[trial].results.attempt_reports
    sweep.send(ev.TrialReported, trial=trial, attempt=1, first=first, keys=keys, rows=(row,))


@pytest.mark.parametrize("field", NAMED)
def test_what_the_first_trial_never_reported_is_told_once(field: str) -> None:
    sweep = running(2, **NAMED[field])
    for trial in (0, 1):
        report(sweep, trial, loss=0.5)
        sweep.returned(trial)
    assert sweep.state.end.status == "completed"
    assert sweep.state.notes == (f"{field}: 'los' was never reported by trial 0; did you mean 'loss'?",)


@pytest.mark.parametrize("field", NAMED)
def test_what_came_with_any_report_is_not_told(field: str) -> None:
    sweep = running(1, **NAMED[field])
    report(sweep, 0, loss=0.5, los=1.0)
    report(sweep, 0, loss=0.4)
    plain = orjson.loads(orjson.dumps(sweep.state.to_json()))
    assert SweepState.from_json(plain).reports.seen_names == ("los",)
    sweep.returned(0)
    assert sweep.state.notes == ()


def test_where_no_trial_completes_it_is_told_at_the_end() -> None:
    sweep = running(1, scheduler=ASHA, failure={"max_failures": 0}, **NAMED["stop.trial"])
    report(sweep, 0, loss=0.5)
    sweep.failed(0)
    assert sweep.state.phase == "ending"
    assert sweep.state.notes == ("stop.trial: 'los' was never reported by any trial; did you mean 'loss'?",)


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": {"trial": {"training_iteration": 2, "loss": {"above": 9}}}},
        {"stop": {"trial_plateau": {"metric": "loss"}}},
        {"search": {"gp": {"cost_attr": "trial_time_s"}}},
        {"checkpoint": {"keep_best": {"metric": "loss", "mode": "min"}}},
    ],
)
def test_what_the_engine_knows_by_itself_need_not_be_reported(fields: dict[str, Any]) -> None:
    sweep = running(1, **fields)
    assert sweep.state.rules.named == {}


def test_a_limit_that_is_never_reported_is_told_while_the_trial_runs() -> None:
    """It may have no other end."""
    sweep = running(1, **NAMED["stop.trial"])
    for _ in range(99):
        report(sweep, 0, loss=0.5)
    assert sweep.state.notes == ()
    report(sweep, 0, loss=0.5)
    note = "stop.trial: 'los' was never reported by trial 0 in 100 reports; did you mean 'loss'?"
    assert sweep.state.notes == (note,)
    sweep.returned(0)
    assert sweep.state.notes == (note,)
