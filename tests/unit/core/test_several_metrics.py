"""Several metrics, in the core and in what is made of it: which trial is the best, what is on the front."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core import make_outcome
from raysweep.core.state.invariants import check
from raysweep.core.views.scores import best_of
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import SweepFailedError
from raysweep.outcome import Holder, Standing, SweepOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.runs.reading.progress import make_progress
from raysweep.runs.reading.state_status import status_of_state
from tests.unit.core.sweep import Commands, Sweep, running
from tests.unit.core.toys import METRIC

TWO: dict[str, Any] = {"metric": [METRIC, "size"], "mode": ["min", "max"]}


def sweep_of(trials: int, **fields: Any) -> Sweep:
    return running(trials, trials, **TWO, **fields)


def report(sweep: Sweep, trial: int, **metrics: Any) -> Commands:
    first = sweep.state.trials[trial].results.attempt_reports
    fields: dict[str, Any] = {"trial": trial, "attempt": 1, "first": first}
    return sweep.send(ev.TrialReported, keys=tuple(metrics), rows=(list(metrics.values()),), **fields)


def done(sweep: Sweep, trial: int, loss: Any, size: Any) -> Commands:
    return [*report(sweep, trial, **{METRIC: loss, "size": size}), *sweep.returned(trial)]


def outcome_of(sweep: Sweep) -> SweepOutcome:
    if sweep.state.phase != "ended":
        sweep.send(ev.SweepEnded)
    check(sweep.state)
    made = make_outcome(sweep.state, sweep_id="s", key="k", uri="mem://s", version="0")
    return SweepOutcome.from_json(made.to_json())


def status_of(sweep: Sweep) -> Standing:
    return status_of_state(sweep.state, None, uri="mem://s", now=100.0)


def numbers(trials: Any) -> list[int]:
    return [trial.number for trial in trials]


def test_the_best_is_the_trial_of_the_front_that_is_best_by_the_first_metric() -> None:
    sweep = sweep_of(5)
    for number, (loss, size) in enumerate([(0.5, 9.0), (0.2, 3.0), (0.6, 8.0), (0.1, 1.0), (0.3, 3.0)]):
        done(sweep, number, loss, size)
    status = status_of(sweep)
    outcome = outcome_of(sweep)
    assert numbers(outcome.pareto) == [3, 1, 0]
    assert outcome.best == outcome.pareto[0]
    assert numbers(outcome.top(9)) == [3, 1, 0, 4, 2], "the front, then the others by the first metric"
    ended = status_of_outcome(outcome, now=0.0)
    for each in (status, ended):
        assert (each.pareto, each.pareto_size) == (("00003", "00001", "00000"), 3)
        assert numbers(each.top) == [3, 1, 0, 4, 2]
        assert each.best is not None
        assert each.best.number == 3
    assert ended.pareto_text == f"3 trials that no other beats in {METRIC} and size: 00003, 00001, 00000"


def test_of_equal_ones_by_the_first_metric_the_second_decides_then_the_number() -> None:
    """Whichever ends first: the best of those that ended is kept as they end."""
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        sweep = sweep_of(3)
        values = [(0.1, 1.0), (0.1, 5.0), (0.1, 5.0)]
        for number in order:
            done(sweep, number, *values[number])
        best = best_of(sweep.state, sweep.state.trials.values())
        assert best is not None
        assert best.number == 1
        assert numbers(outcome_of(sweep).pareto) == [1, 2], "equal ones are both there"


def test_a_search_is_told_of_all_metrics() -> None:
    sweep = sweep_of(1)
    assert cmd.TellSearch(trial=0, value=0.5, end="completed", others=(4.0,)) in done(sweep, 0, 0.5, 4.0)


@pytest.mark.parametrize(
    ("size", "has"),
    [
        ({}, "no 'size'"),
        ({"size": "large"}, "'size' as 'large', which is not a number"),
        ({"size": [1]}, "[1]"),
    ],
)
def test_a_trial_that_is_done_without_one_of_them_has_failed_and_so_has_the_sweep(
    size: dict[str, Any], has: str
) -> None:
    sweep = sweep_of(3)
    report(sweep, 0, **{METRIC: 0.5}, **size)
    sweep.returned(0)
    state = sweep.state
    assert (state.end.status, state.end.fault, state.end.fault_field) == ("failed", "spec", "metric")
    assert state.end.why.startswith("the last report of trial 0 has ")
    assert has in state.end.why
    assert "which metric names; it has 'loss'" in state.end.why


def test_where_others_have_reported_it_only_the_trial_has_failed() -> None:
    sweep = sweep_of(2)
    done(sweep, 0, 0.5, 4.0)
    report(sweep, 1, **{METRIC: 0.1})
    commands = sweep.returned(1)
    assert cmd.TellSearch(trial=1, value=None, end="failed") in commands
    assert sweep.trial_state(1) == "failed"
    outcome = outcome_of(sweep)
    assert outcome.status == "completed"
    assert numbers(outcome.pareto) == [0]


def test_all_are_of_one_report_the_last() -> None:
    """A first metric of earlier and a second of now are the values of no model."""
    sweep = sweep_of(2)
    done(sweep, 0, 0.5, 4.0)
    report(sweep, 1, **{METRIC: 0.1})
    report(sweep, 1, size=9.0)
    assert best_of(sweep.state, sweep.state.trials.values()) is sweep.state.trials[0]
    sweep.returned(1)
    assert sweep.trial_state(1) == "failed"


def test_not_a_number_fails_the_trial_or_keeps_it_from_the_front() -> None:
    strict, lenient = sweep_of(2), sweep_of(2, failure={"non_finite": "ignore"})
    for sweep in (strict, lenient):
        done(sweep, 0, 0.5, 4.0)
        commands = done(sweep, 1, 0.1, "NaN")
        end = "infeasible" if sweep is strict else "completed"
        assert cmd.TellSearch(trial=1, value=None, end=end) in commands
        outcome = outcome_of(sweep)
        state = "failed" if sweep is strict else "completed"
        assert (outcome.trials[1].state, numbers(outcome.pareto)) == (state, [0])
        assert numbers(outcome.top(9)) == ([0] if sweep is strict else [0, 1])
        assert [dot.trial_id for dot in status_of_outcome(outcome, now=0.0).dots] == ["00000"]
        assert outcome.best == outcome.trials[0]
    failure = outcome_of(strict).first_failure
    assert failure is not None
    assert "metric 'size' was NaN or infinite" in failure.problem


def test_what_breaks_a_constraint_is_not_on_the_front() -> None:
    sweep = sweep_of(3, constraints=["size <= 5"])
    for number, (loss, size) in enumerate([(0.1, 9.0), (0.5, 2.0), (0.6, 4.0)]):
        done(sweep, number, loss, size)
    status = status_of(sweep)
    outcome = outcome_of(sweep)
    assert numbers(outcome.pareto) == [1, 2]
    assert numbers(outcome.top(9)) == [1, 2, 0]
    assert status.pareto == ("00001", "00002")


def test_where_no_trial_has_all_of_them_it_is_said() -> None:
    sweep = sweep_of(1, failure={"non_finite": "ignore"})
    done(sweep, 0, 0.1, "NaN")
    said = f"no trial has a number for each of {METRIC}, size; the nearest is trial 00000 with {METRIC} 0.1"
    assert status_of(sweep).infeasible == said
    assert status_of(sweep).pareto_text == ""
    outcome = outcome_of(sweep)
    assert (outcome.infeasible, outcome.pareto, outcome.found_best) == (said, (), None)
    assert outcome.why.endswith(said)
    with pytest.raises(SweepFailedError, match="no trial has a number for each of"):
        _ = outcome.best


def test_one_that_runs_is_not_on_the_front_yet() -> None:
    sweep = sweep_of(2)
    done(sweep, 0, 0.5, 4.0)
    report(sweep, 1, **{METRIC: 0.9, "size": 6.0})
    assert status_of(sweep).pareto == ("00000",)


def test_documents_of_one_metric_have_no_others() -> None:
    sweep = running(1, 1)
    report(sweep, 0, **{METRIC: 0.5})
    sweep.returned(0)
    outcome = outcome_of(sweep)
    assert outcome.model_dump(mode="json")["others"] == {}
    assert outcome.pareto == (outcome.best,)
    assert numbers(outcome.top(3)) == [0]


def test_the_heartbeat_says_which_metrics_there_are() -> None:
    several, one = sweep_of(1), running(1, 1)
    for sweep, others in ((several, {"size": "max"}), (one, {})):
        holder = Holder(host="h", pid=1)
        progress = make_progress(sweep.state, sweep_id="s", holder=holder, at=1.0, total=1)
        assert progress.model_dump(mode="json")["others"] == others
