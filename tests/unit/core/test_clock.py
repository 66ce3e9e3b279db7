"""The wall clock is set, or the machine sleeps: deadlines follow it, durations do not."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.handlers.sweep_end import end_in_sight, usage
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.limited import planned, stops, until
from tests.unit.core.sweep import Commands, Sweep


def timers(commands: Commands) -> list[float | None]:
    return [command.at for command in commands if isinstance(command, cmd.SetTimer)]


@pytest.mark.parametrize(("ahead_s", "due_at"), [(-3600.0, 3835.0), (100.0, 135.0), (300.0, -65.0)])
def test_a_deadline_goes_by_the_wall_clock(ahead_s: float, due_at: float) -> None:
    sweep = planned(1, 1, stop=until(235))
    assert timers(sweep.send(ev.ClockMoved, ahead_s=ahead_s)) == [due_at]


def test_a_deadline_that_has_passed_while_the_machine_slept_ends_the_sweep() -> None:
    sweep = planned(1, 2, stop=until(235))
    sweep.report(0, 0.5)
    sweep.send(ev.ClockMoved, ahead_s=3600.0)
    assert stops(sweep.timer(sweep.at)) == [(0, 0.0)]
    assert sweep.state.end.status == "deadline"
    assert sweep.state.end.by is not None
    assert sweep.state.end.by["value"] == 3700.0


def test_a_time_budget_goes_by_the_time_that_the_controllers_ran() -> None:
    sweep = planned(1, 1, stop={"time_budget_s": 60})
    assert timers(sweep.send(ev.ClockMoved, ahead_s=3600.0)) == []
    end = end_in_sight(sweep.state)
    assert end is not None
    assert end.at == 160.0


@pytest.mark.parametrize(
    ("by_s", "noted"), [(3600.0, "forward by 3600 s"), (-90.0, "back by 90 s"), (5.0, "")]
)
def test_a_large_move_is_noted(by_s: float, noted: str) -> None:
    sweep = planned(1, 1)
    sweep.send(ev.ClockMoved, ahead_s=by_s)
    assert (noted in "".join(sweep.state.notes)) if noted else not sweep.state.notes


def resumed(at: float, **started: Any) -> Sweep:
    """A controller ran from 100 to 150 and was killed; the next begins at `at`."""
    sweep = planned(1, 2, stop={"time_budget_s": 600})
    sweep.at = 150.0
    sweep.report(0, 0.5)
    ahead_s = started.pop("ahead_s", 0.0)
    if ahead_s:
        sweep.send(ev.ClockMoved, ahead_s=ahead_s)
    sweep.at = at
    sweep.send(ev.ControllerStarted, generation=2, **started)
    return sweep


@pytest.mark.parametrize(
    ("at", "started", "active_s"),
    [
        (9000.0, {}, 50.0),  # hours later: nothing ran meanwhile
        (9000.0, {"seen_at": 152.0}, 52.0),  # its heartbeat is newer than its journal
        (60.0, {"seen_at": 152.0}, 50.0),  # set back meanwhile: what ran is not forgotten
        (9000.0, {"ahead_s": 3600.0, "seen_at": 3752.0}, 52.0),  # its heartbeat goes by the wall clock
    ],
)
def test_a_resume_counts_what_its_predecessor_ran(
    at: float, started: dict[str, Any], active_s: float
) -> None:
    sweep = resumed(at, **started)
    assert usage(sweep.state, at)["active_s"] == active_s
    assert sweep.state.clock.ahead_s == 0.0


def test_a_trial_that_backs_off_waits_no_longer_for_a_clock_that_was_set_back() -> None:
    sweep = planned(1, 2, failure={"backoff_initial_s": 30, "max_failures": 3})
    sweep.at = 150.0
    sweep.failed(0)
    (left_s,) = [at - 150.0 for at in sweep.state.line.waiting.values()]
    sweep.at = 60.0
    sweep.send(ev.ControllerStarted, generation=2)
    sweep.send(ev.CapacityChanged, slots=1)
    assert sweep.state.clock.timer_at == pytest.approx(60.0 + left_s)
    sweep.timer(sweep.state.clock.timer_at)
    assert sweep.trial_state(0) == "pending"
