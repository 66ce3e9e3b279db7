"""A limit ends a sweep only where it cut a trial, or kept one from beginning."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core import make_outcome
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import SweepFailedError
from raysweep.outcome import SweepOutcome
from tests.unit.core.limited import planned, step_to, stops, until
from tests.unit.core.sweep import Sweep

LIMITS = [until(135), {"time_budget_s": 35}, {"budget": {"cpu_hours": 2 * 35 / 3600}}]


def outcome_of(sweep: Sweep) -> SweepOutcome:
    sweep.send(ev.SweepEnded)
    return make_outcome(sweep.state, sweep_id="s", key="k", uri="mem://s", version="0")


def ends(commands: list[cmd.Command]) -> list[str]:
    return [command.status for command in commands if isinstance(command, cmd.EndSweep)]


@pytest.mark.parametrize("stop", LIMITS, ids=["deadline", "time_budget_s", "budget"])
def test_trials_that_are_asked_to_end_and_return_have_completed(stop: dict[str, Any]) -> None:
    """Steps of 8 s without checkpoints: at 124 both are asked to end with their next report, their last."""
    sweep = planned(2, 2, stop=stop)
    for number, at in enumerate((108, 116, 124)):
        for trial in (0, 1):
            asked = step_to(sweep, at, trial, number, saves=False)
            assert bool(stops(asked)) == (at == 124)
    sweep.at = 132
    for trial in (0, 1):
        sweep.report(trial, 0.1)
        last = sweep.returned(trial)
    assert ends(last) == ["completed"]
    outcome = outcome_of(sweep)
    assert (outcome.status, outcome.is_partial, outcome.ended_by) == ("completed", False, None)
    assert outcome.why.startswith("2 of 2 trials ended; 2 completed; completed: every trial has ended")
    outcome.raise_for_status(accept_partial=False)


@pytest.mark.parametrize("stop", LIMITS, ids=["deadline", "time_budget_s", "budget"])
def test_trials_that_return_as_the_limit_comes_have_completed(stop: dict[str, Any]) -> None:
    sweep = planned(2, 2, stop=stop)
    for trial in (0, 1):
        sweep.report(trial, 0.1)
    asked = sweep.timer(135.0)
    assert stops(asked) == [(0, 0.0), (1, 0.0)]
    sweep.returned(0)
    assert ends(sweep.returned(1)) == ["completed"]
    assert outcome_of(sweep).status == "completed"


@pytest.mark.parametrize("stop", LIMITS, ids=["deadline", "time_budget_s", "budget"])
def test_one_trial_that_was_cut_makes_the_limit_the_end(stop: dict[str, Any]) -> None:
    sweep = planned(2, 2, stop=stop)
    for trial in (0, 1):
        sweep.report(trial, 0.1)
    sweep.timer(135.0)
    sweep.returned(0)
    (status,) = ends(sweep.stopped(1))
    assert status in ("deadline", "budget")
    with pytest.raises(SweepFailedError):
        outcome_of(sweep).raise_for_status(accept_partial=False)


@pytest.mark.parametrize("stop", LIMITS, ids=["deadline", "time_budget_s", "budget"])
def test_one_trial_that_never_began_makes_the_limit_the_end(stop: dict[str, Any]) -> None:
    sweep = planned(2, 3, stop=stop)
    for trial in (0, 1):
        sweep.report(trial, 0.1)
    sweep.timer(135.0)
    sweep.returned(0)
    (status,) = ends(sweep.returned(1))
    assert status in ("deadline", "budget")


def test_trials_that_all_failed_as_the_limit_came_have_failed() -> None:
    sweep = planned(1, 1, stop=until(135), failure={"max_failures": 0})
    sweep.timer(135.0)
    sweep.report(0, "NaN")
    assert ends(sweep.returned(0)) == ["failed"]
    assert sweep.state.end.fault == "user"


def test_a_plateau_at_the_last_trial_ends_nothing() -> None:
    sweep = planned(1, 3, stop={"plateau": {"window": 2, "min_improvement": 0.1}})
    for trial in range(3):
        if trial:
            sweep.began(trial)
        sweep.report(trial, 0.5)
        last = sweep.returned(trial)
    assert ends(last) == ["completed"]
    assert outcome_of(sweep).ended_by is None


def test_a_target_that_the_last_trial_reaches_is_reached() -> None:
    sweep = planned(1, 1, stop={"target": 0.2})
    sweep.report(0, 0.1)
    assert ends(sweep.returned(0)) == ["target"]


def test_a_sweep_whose_trials_have_not_all_been_drawn_is_not_complete() -> None:
    sweep = Sweep(num_samples=4, search="tpe", stop=until(135))
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.suggest(1, is_exhausted=False)
    sweep.send(ev.SlotOpened, slot=0)
    sweep.began(0)
    sweep.report(0, 0.1)
    sweep.timer(135.0)
    assert ends(sweep.returned(0)) == ["deadline"]
