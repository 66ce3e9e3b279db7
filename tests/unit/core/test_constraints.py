"""Constraints in the core: which trial is the best, which report is, and what ends by them."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core import SweepState, make_outcome
from raysweep.core.state.invariants import check
from raysweep.core.views.scores import best_of, ranked
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import SweepFailedError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.runs.reading.state_status import status_of_state
from tests.unit.core.sweep import Commands, Sweep, running
from tests.unit.core.toys import METRIC

BOUND = "latency_ms <= 20"
NAN = "NaN"


def bounded(trials: int, slots: int | None = None, **fields: Any) -> Sweep:
    return running(slots or trials, trials, constraints=[BOUND], **fields)


def report(sweep: Sweep, trial: int, *rows: tuple[Any, Any]) -> Commands:
    """Reports of the metric and the latency; a latency of None is not reported."""
    commands: Commands = []
    for loss, latency in rows:
        keys, row = ((METRIC, "latency_ms"), [loss, latency]) if latency is not None else ((METRIC,), [loss])
        first = sweep.state.trials[trial].results.attempt_reports
        fields: dict[str, Any] = {"trial": trial, "attempt": 1, "first": first}
        commands += sweep.send(ev.TrialReported, keys=keys, rows=(row,), **fields)
    return commands


def done(sweep: Sweep, trial: int, *rows: tuple[Any, Any]) -> Commands:
    report(sweep, trial, *rows)
    return sweep.returned(trial)


def outcome_of(sweep: Sweep) -> SweepOutcome:
    if sweep.state.phase != "ended":
        sweep.send(ev.SweepEnded)
    made = make_outcome(sweep.state, sweep_id="s", key="k", uri="mem://s", version="0")
    return SweepOutcome.from_json(made.to_json())


def test_what_breaks_a_constraint_is_never_the_best_and_stands_behind() -> None:
    sweep = bounded(4)
    done(sweep, 0, (0.1, 50.0))
    assert best_of(sweep.state, sweep.state.trials.values()) is None, "no trial satisfies it yet"
    done(sweep, 1, (0.5, 20.0))
    done(sweep, 2, (0.2, 21.0))
    done(sweep, 3, (0.9, 3.0))
    outcome = outcome_of(sweep)
    assert outcome.best is not None
    assert outcome.best.number == 1
    assert [trial.number for trial in outcome.top(9)] == [1, 3, 2, 0]
    assert [trial.number for trial in ranked(sweep.state)] == [1, 3, 2, 0]
    assert outcome.trials[0].violations == {BOUND: 30.0}
    assert (outcome.trials[0].violated, outcome.trials[1].violated) == ((BOUND,), ())
    assert "best loss 0.5 (trial 00001)" in outcome.why
    dots = status_of_outcome(outcome, now=0.0).dots
    assert {dot.trial_id for dot in dots} == {"00001", "00003"}


def test_without_one_that_satisfies_them_there_is_no_best_and_it_is_said() -> None:
    sweep = bounded(2)
    done(sweep, 0, (0.1, 50.0))
    status = status_of_state(sweep.state, None, uri="mem://s", now=100.0)
    assert status.best is None
    assert status.infeasible == f"no trial satisfies {BOUND}; the nearest is trial 00000 with loss 0.1"
    done(sweep, 1, (0.9, 21.0))
    outcome = outcome_of(sweep)
    assert (outcome.status, outcome.found_best) == ("completed", None)
    said = f"no trial satisfies {BOUND}; the nearest is trial 00001 with loss 0.9"
    assert outcome.infeasible == said
    assert outcome.why.endswith(said)
    assert outcome.reason == "every trial has ended"
    with pytest.raises(SweepFailedError, match="no trial satisfies latency_ms <= 20"):
        _ = outcome.best
    assert status_of_outcome(outcome, now=0.0).infeasible == said


def test_the_report_that_ranks_says_whether_a_trial_satisfies_them() -> None:
    rows = [(0.5, 10.0), (0.3, 30.0), (0.4, 15.0), (0.2, 40.0)]
    last, best = bounded(1), bounded(1, score="best")
    for sweep in (last, best):
        done(sweep, 0, *rows)
    assert outcome_of(last).found_best is None
    found = outcome_of(best).found_best
    assert found is not None
    assert (found.score, found.best_metrics["latency_ms"]) == (0.4, 15.0), "the best of those that satisfy it"


def test_of_reports_that_all_break_it_the_best_by_the_metric_ranks() -> None:
    sweep = bounded(1, score="best")
    done(sweep, 0, (0.5, 30.0), (0.3, 90.0), (0.4, 25.0))
    assert outcome_of(sweep).trials[0].score == 0.3


@pytest.mark.parametrize("score", ["last", "best"])
def test_a_trial_that_is_done_without_the_metric_has_failed_and_so_has_the_sweep(score: str) -> None:
    sweep = bounded(3, score=score)
    done(sweep, 0, (0.5, None))
    state = sweep.state
    assert (state.end.status, state.end.fault, state.end.fault_field) == ("failed", "spec", "constraints")
    which = "last" if score == "last" else "best"
    assert state.end.why == (
        f"the {which} report of trial 0 has no 'latency_ms', which the constraint 'latency_ms <= 20' names;"
        " it has 'loss', 'training_iteration'"
    )


def test_where_others_have_reported_it_only_the_trial_has_failed() -> None:
    sweep = bounded(3)
    done(sweep, 0, (0.5, 10.0))
    commands = done(sweep, 1, (0.1, None))
    assert sweep.state.phase == "running"
    assert sweep.trial_state(1) == "failed"
    assert cmd.TellSearch(trial=1, value=None, end="failed") in commands
    done(sweep, 2, (0.2, 5.0))
    outcome = outcome_of(sweep)
    assert outcome.best is not None
    assert outcome.best.number == 2
    assert outcome.first_failure is not None
    assert "'latency_ms'" in outcome.first_failure.problem


def test_a_value_that_is_no_number_satisfies_nothing_and_fails_nobody() -> None:
    sweep = bounded(2)
    done(sweep, 0, (0.1, NAN))
    done(sweep, 1, (0.5, 10.0))
    outcome = outcome_of(sweep)
    assert outcome.best is not None
    assert outcome.best.number == 1
    assert outcome.trials[0].violations == {BOUND: None}
    assert outcome.trials[0].violated == (BOUND,)


def test_the_search_is_told_how_far_a_trial_is_and_nothing_where_that_is_not_known() -> None:
    sweep = bounded(3)
    assert cmd.TellSearch(trial=0, value=0.1, end="completed", violations=(30.0,)) in done(
        sweep, 0, (0.1, 50.0)
    )
    assert cmd.TellSearch(trial=1, value=0.2, end="completed", violations=(-5.0,)) in done(
        sweep, 1, (0.2, 15.0)
    )
    assert cmd.TellSearch(trial=2, value=None, end="completed") in done(sweep, 2, (0.3, NAN))


def test_the_target_counts_only_for_a_report_that_satisfies_them() -> None:
    sweep = bounded(2, stop={"target": 0.2})
    assert not [c for c in report(sweep, 0, (0.1, 50.0)) if isinstance(c, cmd.StopTrial)]
    assert sweep.state.phase == "running"
    report(sweep, 1, (0.15, 10.0))
    assert sweep.state.end.status == "target"
    assert sweep.state.end.target_trial == 1


def test_what_breaks_a_constraint_moves_no_plateau() -> None:
    sweep = bounded(7, stop={"plateau": {"window": 2}})
    for trial, row in enumerate([(0.9, 50.0), (0.8, 50.0), (0.7, 50.0)]):
        done(sweep, trial, row)
    assert sweep.state.phase == "running", "there is no best yet that could rest"
    done(sweep, 3, (0.95, 10.0))
    done(sweep, 4, (0.1, 50.0))
    assert sweep.state.phase == "running"
    done(sweep, 5, (0.05, 50.0))
    assert sweep.state.end.status == "plateau"
    assert sweep.state.ranking.plateau_best == 0.95


def test_a_scheduler_compares_by_the_metric_alone() -> None:
    asha = {"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2}}
    sweep = bounded(2, scheduler=asha)
    report(sweep, 0, (0.1, 50.0))
    commands = report(sweep, 1, (0.5, 10.0))
    assert [c.trial for c in commands if isinstance(c, cmd.StopTrial)] == [1]
    sweep.stopped(1)
    assert best_of(sweep.state, sweep.state.trials.values()) is sweep.state.trials[1], (
        "it is the one that satisfies it"
    )


def test_the_trials_that_keep_checkpoints_are_first_those_that_satisfy_them() -> None:
    sweep = bounded(3, checkpoint={"keep_top_k": 1})
    for trial, row in enumerate([(0.1, 50.0), (0.9, 10.0), (0.2, 60.0)]):
        report(sweep, trial, row)
        sweep.saved(trial, 0, report=0)
        sweep.returned(trial)
    assert sweep.state.ranking.top == [1]
    check(sweep.state)


def test_a_state_that_was_stored_goes_on_with_the_same_best() -> None:
    sweep = bounded(3)
    done(sweep, 0, (0.1, 50.0))
    done(sweep, 1, (0.5, 10.0))
    again = SweepState.from_json(sweep.state.to_json())
    assert again.to_json() == sweep.state.to_json()
    best = best_of(again, again.trials.values())
    assert best is not None
    assert best.number == 1
